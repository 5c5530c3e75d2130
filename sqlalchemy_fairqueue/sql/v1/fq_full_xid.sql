-- fq_full_xid: the 64-bit form of a transaction id of a row: the one that is within 2^31 of the next id.
-- Guarantees: right for the xmin and the xmax of a row. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_full_xid(p_xid xid)
returns xid8
language plpgsql
stable
as $$
declare
  v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  return (
    v_next + ((p_xid::text::bigint - v_next + 2147483648) & 4294967295) - 2147483648
  )::text::xid8;
end
$$;
