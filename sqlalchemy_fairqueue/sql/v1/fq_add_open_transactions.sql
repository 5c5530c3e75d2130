-- fq_add_open_transactions: add the transactions below p_xid that were open in a snapshot to p_open, see
-- fq_still_open_transactions, with the floor of signals from before it rises past them.
-- Guarantees: if p_xid is below the xmax of the snapshot, each other transaction with a lower id has ended, and the
-- snapshot sees what it committed. The ids are those of whole transactions: a subtransaction's signal counts as that of
-- its transaction.
-- Locks: none. Index: none. Errors: none.
create function fairqueue.fq_add_open_transactions(
  p_open bigint[], p_snapshot pg_snapshot, p_xid bigint, p_floor bigint
)
returns bigint[]
language plpgsql
stable
as $$
declare
  v_half integer := cardinality(p_open) / 2;
  v_new bigint[] := array(
    select x.xid::text::bigint
    from pg_snapshot_xip(p_snapshot) x(xid)
    where x.xid::text::bigint < p_xid
      and x.xid::text::bigint <> all (p_open[:v_half])
  );
begin
  return p_open[:v_half] || v_new || p_open[v_half + 1:] || array_fill(p_floor, array[cardinality(v_new)]);
end
$$;
