-- fq_waits_later: how many messages of a channel are scheduled after p_now, and how many are held at its end. With
-- p_scan: only the held ones, up to so many.
-- Guarantees: one query, which the planner inlines. Locks: none. Index: fq_message_ready_ix. Errors: none.
create function fairqueue.fq_waits_later(p_channel_id bigint, p_now bigint, p_scan bigint)
returns table (scheduled bigint, held bigint)
language sql
stable
as $$
  select count(*) filter (where u.dequeue_at < 9223372036854775807),
    count(*) filter (where u.dequeue_at = 9223372036854775807)
  from (
    select m.dequeue_at
    from fairqueue.fq_message m
    where m.channel_id = p_channel_id
      and m.lease_id is null
      and m.dequeue_at > case when num_nulls(p_scan) = 1 then p_now else 9223372036854775806 end
    limit p_scan
  ) u
$$;
