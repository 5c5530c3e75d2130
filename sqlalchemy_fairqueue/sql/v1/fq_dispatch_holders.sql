-- fq_dispatch_holders: the transactions that last locked the dispatch rows of queues, as the dequeue does that hears
-- signals, and a change of a queue's limits. p_queue null: of all queues. One that has ended may be among them.
-- Guarantees: as the statement that calls it sees them. Locks: none. Index: none; reads a row a queue. Errors: none.
create function fairqueue.fq_dispatch_holders(p_queue text default null)
returns table (queue text, holder xid)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select s.queue, s.xmax
  from fairqueue.fq_queue_state s
  where s.xmax <> 0
    and (p_queue is null or s.queue = p_queue)
$$;
