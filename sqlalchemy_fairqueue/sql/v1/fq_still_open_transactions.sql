-- fq_still_open_transactions: which of the transactions that a consumer's floor of signals has passed are still open.
-- p_open: their ids, then as many floors, each from before it rose past the transaction. Returns the least floor of
-- those that have ended (null: none has), then what is left of p_open.
-- Guarantees: a transaction counts as ended if the snapshot sees what it committed; prepared ones are open.
-- Locks: none. Index: none. Errors: none.
create function fairqueue.fq_still_open_transactions(p_open bigint[], p_snapshot pg_snapshot)
returns bigint[]
language plpgsql
stable
as $$
declare
  v_half integer := cardinality(p_open) / 2;
begin
  return (
    select array[min(o.floor) filter (where o.ended)]
      || array_agg(o.xid) filter (where not o.ended)
      || array_agg(o.floor) filter (where not o.ended)
    from (
      select u.xid, u.floor, pg_visible_in_snapshot(u.xid::text::xid8, p_snapshot) as ended
      from unnest(p_open[:v_half], p_open[v_half + 1:]) u(xid, floor)
    ) o
  );
end
$$;
