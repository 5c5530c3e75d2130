-- fq_lock_dispatcher: lock the state of a queue's dispatcher, for a call that attends to the queue. row_id: its row, null:
-- another call attends, or there is none; state: what it says; is_trusted: whether it names transactions of this server,
-- as a state that came out of a dump does not.
-- Guarantees: until the transaction ends nobody else attends to the queue. Locks: the newest row of the state for no key
-- update, skip locked: it waits for none.
-- Index: fq_queue_state_newest_ix. Errors: none.
create function fairqueue.fq_lock_dispatcher(
  p_queue text, out row_id tid, out state fairqueue.fq_queue_state, out is_trusted boolean
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
    row_id := v_locked.row;
    state := v_locked.state;
    is_trusted := v_locked.is_trusted;
  end if;
end
$$;
