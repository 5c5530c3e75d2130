-- fq_signal_floor_after: where the next dequeue begins to read the signals of a queue. A floor rises in two steps: what
-- was read up to p_next_floor counts once all transactions below p_floor_xid, which was drawn after the scan, have
-- ended. p_open: open transactions that the floor has passed, see fq_still_open_transactions. p_first_signal,
-- p_last_signal: the least and the greatest id that this call read (null: none). p_may_draw: whether the call may draw
-- a transaction id: it has written nothing else.
-- Guarantees: no signal can appear below the floor, but for those of the transactions in still_open. Where one does,
-- because the sequence was set back, the floor falls to it.
-- Locks: none. Index: none. Errors: none.
create function fairqueue.fq_signal_floor_after(
  p_floor bigint,
  p_next_floor bigint,
  p_floor_xid bigint,
  p_open bigint[],
  p_snapshot pg_snapshot,
  p_first_signal bigint,
  p_last_signal bigint,
  p_may_draw boolean,
  out signal_floor bigint,
  out next_signal_floor bigint,
  out floor_xid bigint,
  out still_open bigint[]
)
language plpgsql
volatile
as $$
declare
  -- so many ids of signals are worth a floor that rises past open transactions
  c_stale constant bigint := 256;
  v_raised bigint;
begin
  signal_floor := p_floor;
  next_signal_floor := p_next_floor;
  floor_xid := p_floor_xid;
  still_open := p_open;
  if p_first_signal <= p_floor then
    -- A full scan found a signal below the floor: the ids began again at a lower one, as after a restore into this
    -- database. What is known of the others is of the time before.
    signal_floor := p_first_signal - 1;
    next_signal_floor := null;
    floor_xid := null;
  end if;
  if floor_xid is not null then
    -- The transactions that drew ids below the next floor have ended, and this scan saw what they left: no signal can
    -- appear below both any more, but for those of transactions that are kept because they are open.
    v_raised := least(next_signal_floor, p_first_signal - 1);
    if floor_xid <= pg_snapshot_xmin(p_snapshot)::text::bigint then
      signal_floor := greatest(signal_floor, v_raised);
      floor_xid := null;
    elsif v_raised - signal_floor >= c_stale and floor_xid < pg_snapshot_xmax(p_snapshot)::text::bigint then
      still_open := fairqueue.fq_add_open_transactions(
        coalesce(p_open, '{}')::bigint[], p_snapshot, p_floor_xid, p_floor
      );
      signal_floor := v_raised;
      floor_xid := null;
    end if;
  end if;
  -- The own xid, drawn after the scan, is above that of every transaction with a lower signal. A snapshot's xmax would
  -- not do, for transactions with that id and greater ones can be running.
  if p_may_draw
    and p_last_signal is not null
    and (
      floor_xid is null
      -- too little to rise past the transactions that hold it back
      or (p_last_signal - signal_floor >= c_stale and next_signal_floor - signal_floor < c_stale)
    )
  then
    next_signal_floor := greatest(next_signal_floor, p_last_signal);
    floor_xid := pg_current_xact_id()::text::bigint;
  end if;
end
$$;
