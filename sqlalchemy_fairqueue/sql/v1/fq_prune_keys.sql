-- fq_prune_keys: delete the rows of keys whose period is over, up to p_limit of them, the oldest first. Returns how
-- many.
-- Guarantees: a key is free when its period is over, whether or not its row is deleted. Several calls at once wait for
-- none and delete nothing twice.
-- Locks: the rows, skip locked. Index: fq_key_period_expires_ix. Errors: QF001 bad limit.
create function fairqueue.fq_prune_keys(p_limit integer)
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_keys bigint;
begin
  if (p_limit between 1 and 1000000) is not true then
    raise exception 'fq_prune_keys has limit %', coalesce(p_limit::text, 'null')
      using errcode = 'QF001', hint = 'delete 1 to 1000000 keys at once';
  end if;
  with doomed as materialized (
    select k.ctid as row
    from fairqueue.fq_key_period k
    where k.expires_at < v_now
    order by k.expires_at
    limit p_limit
    for update skip locked
  )
  delete from fairqueue.fq_key_period k
  using doomed u
  where k.ctid = u.row;
  get diagnostics v_keys = row_count;
  return v_keys;
end
$$;
