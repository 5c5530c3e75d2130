-- fq_transaction_is_open: whether the transaction of an xmax is still open, prepared ones included.
-- Guarantees: as of now, not of the snapshot. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_transaction_is_open(p_xid xid)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return pg_xact_status(fairqueue.fq_full_xid(p_xid)) is not distinct from 'in progress';
end
$$;
