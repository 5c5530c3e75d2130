-- fq_prune_stop_requests: delete requests to stop that are an hour old, up to p_limit of them, the oldest first.
-- Returns how many.
-- Guarantees: every worker that had started when such a request was made has polled since, or is without the database
-- for an hour. Several calls at once wait for none and delete nothing twice.
-- Locks: the rows, skip locked. Index: fq_stop_request_requested_ix. Errors: QF001 bad limit.
create function fairqueue.fq_prune_stop_requests(p_limit integer)
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
  v_requests bigint;
begin
  if (p_limit between 1 and 1000000) is not true then
    raise exception 'fq_prune_stop_requests has limit %', coalesce(p_limit::text, 'null')
      using errcode = 'QF001', hint = 'delete 1 to 1000000 requests at once';
  end if;
  with doomed as materialized (
    select r.ctid as row
    from fairqueue.fq_stop_request r
    where r.requested_at < v_now - 3600000000
    order by r.requested_at
    limit p_limit
    for update skip locked
  )
  delete from fairqueue.fq_stop_request r
  using doomed u
  where r.ctid = u.row;
  get diagnostics v_requests = row_count;
  return v_requests;
end
$$;
