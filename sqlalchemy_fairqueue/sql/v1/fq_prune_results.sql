-- fq_prune_results: delete results whose time is over, up to p_limit of them, the oldest first, and as many waits whose
-- time is over, which a process left that died. Returns how many results.
-- Guarantees: several calls at once wait for none and delete nothing twice.
-- Locks: the rows, skip locked. Index: fq_result_expires_ix, fq_result_wait_until_ix. Errors: QF001 bad limit.
create function fairqueue.fq_prune_results(p_limit integer)
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
  v_results bigint;
begin
  if (p_limit between 1 and 1000000) is not true then
    raise exception 'fq_prune_results has limit %', coalesce(p_limit::text, 'null')
      using errcode = 'QF001', hint = 'delete 1 to 1000000 results at once';
  end if;
  with doomed as materialized (
    select w.ctid as row
    from fairqueue.fq_result_wait w
    where w.waiting_until < v_now
    order by w.waiting_until
    limit p_limit
    for update skip locked
  )
  delete from fairqueue.fq_result_wait w
  using doomed u
  where w.ctid = u.row;
  with doomed as materialized (
    select r.ctid as row
    from fairqueue.fq_result r
    where r.expires_at < v_now
    order by r.expires_at
    limit p_limit
    for update skip locked
  )
  delete from fairqueue.fq_result r
  using doomed u
  where r.ctid = u.row;
  get diagnostics v_results = row_count;
  return v_results;
end
$$;
