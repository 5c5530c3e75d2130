-- fq_gate_holders: the transactions that last locked the gates of queues; some may have ended. alone: it locked the
-- door, as a change of the limit does; attends: it locked the dispatch row, as the dequeue that hears signals does.
-- p_queue null: of all queues.
-- Guarantees: as the statement that calls it sees them. Locks: none. Index: none; reads the tables, which have 66 rows
-- a queue. Errors: none.
create function fairqueue.fq_gate_holders(p_queue text default null)
returns table (queue text, holder xid, alone boolean, attends boolean)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select l.queue, l.holder, bool_or(l.door), bool_or(l.state)
  from (
    select g.queue, g.xmax, g.part = -1, false
    from fairqueue.fq_gate g
    union all
    select s.queue, s.xmax, false, true
    from fairqueue.fq_queue_state s
  ) l (queue, holder, door, state)
  where l.holder <> 0
    and (p_queue is null or l.queue = p_queue)
  group by l.queue, l.holder;
end
$$;
