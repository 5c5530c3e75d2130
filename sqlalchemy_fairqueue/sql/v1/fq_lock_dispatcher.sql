-- fq_lock_dispatcher: lock the dispatch row of a queue, for a call that attends to it. dispatch_row: where it stands
-- (null: another call attends, or there is none); state: its contents; is_trusted: its transactions are of this server,
-- which those of a row that came out of a dump are not.
-- Guarantees: until the transaction ends nobody else attends to the queue.
-- Locks: the newest version of the row for no key update, skip locked: it waits for none. Index:
-- fq_queue_state_newest_ix. Errors: none.
create function fairqueue.fq_lock_dispatcher(
  p_queue text, out dispatch_row tid, out state fairqueue.fq_queue_state, out is_trusted boolean
)
language plpgsql
as $$
declare
  v_locked record;
begin
  select s.ctid as row, (s.*)::fairqueue.fq_queue_state as state,
    s.heard_below <= pg_snapshot_xmax(pg_current_snapshot()) and age(s.xmin) <= age(s.heard_below::xid) as is_trusted
  into v_locked
  from (
    select n.ctid as row, n.row_version
    from fairqueue.fq_queue_state n
    where n.queue = p_queue
    order by n.queue desc, n.row_version desc
    limit 1
  ) newest
  join fairqueue.fq_queue_state s on s.ctid = newest.row and s.row_version is not distinct from newest.row_version
  for no key update of s skip locked;
  if found then
    dispatch_row := v_locked.row;
    state := v_locked.state;
    is_trusted := v_locked.is_trusted;
  end if;
end
$$;
