-- fq_transaction_is_open: whether the transaction of an xmax is still open, prepared ones included.
-- Guarantees: as of now, not of the snapshot. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_transaction_is_open(p_xid xid)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
begin
  -- The id with its epoch: within 2^31 of the next one.
  return pg_xact_status(
    (v_next + ((p_xid::text::bigint - v_next + 2147483648) & 4294967295) - 2147483648)::text::xid8
  ) is not distinct from 'in progress';
end
$$;
