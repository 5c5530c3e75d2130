-- fq_find_channel: the channel of a queue that has a name; no row: there is none.
-- Guarantees: one query, which the planner inlines. By its limit it is one index probe also in a plan that was made on
-- empty tables and would read the whole queue. Locks: none. Index: fq_channel_queue_name_key. Errors: none.
create function fairqueue.fq_find_channel(p_queue text, p_name text)
returns setof fairqueue.fq_channel
language sql
stable
as $$
  select c.*
  from fairqueue.fq_channel c
  where c.queue = p_queue
    and c.name = p_name
  limit 1
$$;
