-- fq_gate_holders: the transactions that last locked the gates of queues. alone: with the door, as a change of the
-- limit does. p_queue null: of all queues. A transaction that has ended may be among them.
-- Guarantees: as the statement that calls it sees them. Locks: none. Index: none; reads the table, which has 65 rows a
-- queue. Errors: none.
create function fairqueue.fq_gate_holders(p_queue text default null)
returns table (queue text, holder xid, alone boolean)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select g.queue, g.xmax, bool_or(g.part = -1)
  from fairqueue.fq_gate g
  where g.xmax <> 0
    and g.queue <> ''
    and (p_queue is null or g.queue = p_queue)
  group by g.queue, g.xmax;
end
$$;
