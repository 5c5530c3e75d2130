-- fq_has_signals: whether a queue has unheard signals. p_below, p_open: heard_below and heard_open of fq_queue_state.
-- Guarantees: as the statement that calls it sees them. Locks: none. Index: fq_signal_pkey. Errors: none.
create function fairqueue.fq_has_signals(p_queue text, p_below xid8, p_open xid8[])
returns boolean
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
  return exists (
    select
    from fairqueue.fq_signal g
    where g.queue = p_queue
      and g.xid >= p_below
  ) or exists (
    select
    from fairqueue.fq_signal g
    where g.queue = p_queue
      and g.xid = any (p_open)
  );
end
$$;
