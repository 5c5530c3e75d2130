-- fq_queues: the names of all queues that have channels or are configured, in order.
-- Guarantees: one row a queue. Reads one index entry a queue, however many channels it has.
-- Locks: none. Index: fq_channel_queue_name_key, fq_queue_pkey. Errors: none.
create function fairqueue.fq_queues()
returns setof text
language plpgsql
stable
security definer
as $$
begin
  return query
  with recursive named(queue) as (
    (
      select c.queue
      from fairqueue.fq_channel c
      order by c.queue
      limit 1
    )
    union all
    select (
      select c.queue
      from fairqueue.fq_channel c
      where c.queue > n.queue
      order by c.queue
      limit 1
    )
    from named n
    where n.queue is not null
  )
  select n.queue
  from named n
  where n.queue is not null
  union
  select q.name
  from fairqueue.fq_queue q
  order by 1;
end
$$;
