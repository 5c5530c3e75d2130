-- fq_prune_expired: delete rows whose time is over, up to p_limit of each kind, the oldest first: keys after their
-- period, results, waits for results, which a process left that died, and requests to stop that are an hour old.
-- Returns how many of the kind of which it deleted the most: below p_limit, nothing is left.
-- Guarantees: a key is free when its period is over, whether or not its row is deleted. Every worker that had started
-- when a request to stop was made has polled since, or is without the database for an hour. Several calls at once wait
-- for none and delete nothing twice.
-- Locks: the rows, skip locked. Index: fq_key_period_expires_ix, fq_result_expires_ix, fq_result_wait_until_ix,
-- fq_stop_request_requested_ix. Errors: QF001 bad limit.
create function fairqueue.fq_prune_expired(p_limit integer)
returns bigint
language plpgsql
volatile
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_deleted bigint;
  v_most bigint := 0;
begin
  if (p_limit between 1 and 1000000) is not true then
    raise exception 'fq_prune_expired has limit %', coalesce(p_limit::text, 'null')
      using errcode = 'QF001', hint = 'delete 1 to 1000000 rows of each kind at once';
  end if;
  delete from fairqueue.fq_key_period t
  where t.ctid = any (
    array(
      select x.ctid
      from fairqueue.fq_key_period x
      where x.expires_at < v_now
      order by x.expires_at
      limit p_limit
      for update skip locked
    )
  );
  get diagnostics v_deleted = row_count;
  v_most := greatest(v_most, v_deleted);
  delete from fairqueue.fq_result t
  where t.ctid = any (
    array(
      select x.ctid
      from fairqueue.fq_result x
      where x.expires_at < v_now
      order by x.expires_at
      limit p_limit
      for update skip locked
    )
  );
  get diagnostics v_deleted = row_count;
  v_most := greatest(v_most, v_deleted);
  delete from fairqueue.fq_result_wait t
  where t.ctid = any (
    array(
      select x.ctid
      from fairqueue.fq_result_wait x
      where x.waiting_until < v_now
      order by x.waiting_until
      limit p_limit
      for update skip locked
    )
  );
  get diagnostics v_deleted = row_count;
  v_most := greatest(v_most, v_deleted);
  delete from fairqueue.fq_stop_request t
  where t.ctid = any (
    array(
      select x.ctid
      from fairqueue.fq_stop_request x
      where x.requested_at < v_now - 3600000000
      order by x.requested_at
      limit p_limit
      for update skip locked
    )
  );
  get diagnostics v_deleted = row_count;
  v_most := greatest(v_most, v_deleted);
  return v_most;
end
$$;
