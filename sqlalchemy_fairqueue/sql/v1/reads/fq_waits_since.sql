-- fq_waits_since: since when the ready message of a channel that waits longest has been ready, at the time p_now (null:
-- none is ready). p_scan: how many of its prioritised messages are looked at (null: all).
-- Guarantees: one query, which the planner inlines: a probe of the index, and the prioritised messages. Locks: none.
-- Index: fq_message_ready_ix. Errors: none.
create function fairqueue.fq_waits_since(p_channel_id bigint, p_now bigint, p_scan bigint)
returns table (since bigint)
language sql
stable
as $$
  select least(
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
  )
$$;
