-- fq_waits: since when the ready message of a channel that waits longest has been ready, at the time p_now (null: none
-- is ready), how many messages are scheduled after it, and how many are held. With p_scan only so many prioritised and
-- held messages are looked at, and no scheduled ones.
-- Guarantees: one query, which the planner inlines; a column that its caller does not use costs nothing. Locks: none.
-- Index: fq_message_ready_ix. Errors: none.
create function fairqueue.fq_waits(p_channel_id bigint, p_now bigint, p_scan bigint)
returns table (since bigint, scheduled bigint, held bigint)
language sql
stable
as $$
  select
    least(
      (
        select case when m.priority is null then m.dequeue_at else coalesce(m.returned_at, m.enqueued_at) end
        from fairqueue.fq_message m
        where m.channel_id = p_channel_id
          and m.lease_id is null
          and m.dequeue_at between 0 and p_now
        order by m.channel_id, m.dequeue_at
        limit 1
      ),
      (
        select min(u.since)
        from (
          select coalesce(m.returned_at, m.enqueued_at) as since
          from fairqueue.fq_message m
          where m.channel_id = p_channel_id
            and m.lease_id is null
            and m.dequeue_at < 0
          order by m.channel_id, m.dequeue_at
          limit p_scan
        ) u
      )
    ),
    (
      select count(*)
      from fairqueue.fq_message m
      where p_scan is null
        and m.channel_id = p_channel_id
        and m.lease_id is null
        and m.dequeue_at between p_now + 1 and 9223372036854775806
    ),
    (
      select count(*)
      from (
        select
        from fairqueue.fq_message m
        where m.channel_id = p_channel_id
          and m.lease_id is null
          and m.dequeue_at = 9223372036854775807
        limit p_scan
      ) h
    )
  offset 0
$$;
