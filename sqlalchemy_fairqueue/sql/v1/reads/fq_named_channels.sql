-- fq_named_channels: those of some channels of a queue that exist, and since when each of them waits, as fq_waits_since
-- has it.
-- Guarantees: one query, which the planner inlines. Locks: none. Index: fq_channel_queue_name_key, fq_message_ready_ix.
-- Errors: none.
create function fairqueue.fq_named_channels(p_queue text, p_channels text[], p_now bigint, p_scan integer)
returns table (channel_id bigint, since bigint)
language sql
stable
as $$
  select c.id as channel_id, w.since
  from unnest(p_channels) p(name)
  -- With a limit, or PostgreSQL 15 reads all channels of the queue.
  cross join lateral (
    select f.id
    from fairqueue.fq_channel f
    where f.queue = p_queue
      and f.name = p.name
    limit 1
  ) c
  cross join lateral fairqueue.fq_waits_since(c.id::bigint, p_now, p_scan::bigint) w
$$;
