-- fq_prune_expired: delete rows whose time is over, up to p_limit of each kind, the oldest first: keys after their
-- period; results; waits for results, left by a process that died; requests to stop after an hour; audit rows after 90
-- days; after seven days groups that are finished, records of slots that were run, and schedules from code since they
-- were due, so that no worker has them in its code any more. Returns how many of the kind of which it deleted the most
-- (below p_limit: nothing is left), and the names of those schedules.
-- Guarantees: a key is free when its period is over, whether or not its row is deleted. An open group stays, however
-- old. A worker that runs since before a request to stop has polled within an hour, unless it is without the database.
-- Several calls at once wait for none and delete nothing twice.
-- Locks: the rows, skip locked. Index: fq_key_period_expires_ix, fq_result_expires_ix, fq_group_finished_ix,
-- fq_schedule_slot_pkey, fq_audit_pkey; waits, requests, slots and schedules are few and read whole. Errors: QF001 bad
-- limit.
create function fairqueue.fq_prune_expired(p_limit integer)
returns table (deleted bigint, schedules text[])
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_week bigint := v_now - 604800000000;
begin
  perform fairqueue.fq_check_number('fq_prune_expired has limit'::text, p_limit::bigint, 1::bigint, 1000000::bigint);
  return query
  with keys as (
    delete from fairqueue.fq_key_period t
    where t.ctid = any (array(
        select x.ctid from fairqueue.fq_key_period x
        where x.expires_at < v_now order by x.expires_at limit p_limit for update skip locked
      ))
    returning 1
  ),
  results as (
    delete from fairqueue.fq_result t
    where t.ctid = any (array(
        select x.ctid from fairqueue.fq_result x
        where x.expires_at < v_now order by x.expires_at limit p_limit for update skip locked
      ))
    returning 1
  ),
  waits as (
    delete from fairqueue.fq_result_wait t
    where t.ctid = any (array(
        select x.ctid from fairqueue.fq_result_wait x
        where x.waiting_until < v_now order by x.waiting_until limit p_limit for update skip locked
      ))
    returning 1
  ),
  requests as (
    delete from fairqueue.fq_stop_request t
    where t.ctid = any (array(
        select x.ctid from fairqueue.fq_stop_request x
        where x.requested_at < v_now - 3600000000 order by x.requested_at limit p_limit for update skip locked
      ))
    returning 1
  ),
  audits as (
    delete from fairqueue.fq_audit t
    where t.ctid = any (array(
        select x.ctid from fairqueue.fq_audit x
        where x.at < v_now - 7776000000000 order by x.at limit p_limit for update skip locked
      ))
    returning 1
  ),
  groups as (
    delete from fairqueue.fq_group t
    where t.ctid = any (array(
        select x.ctid from fairqueue.fq_group x
        where x.finished_at < v_week order by x.finished_at limit p_limit for update skip locked
      ))
    returning 1
  ),
  slots as (
    delete from fairqueue.fq_schedule_slot t
    where t.ctid = any (array(
        select x.ctid from fairqueue.fq_schedule_slot x
        where x.ran_at < v_week order by x.ran_at limit p_limit for update skip locked
      ))
    returning 1
  ),
  vanished as (
    delete from fairqueue.fq_schedule t
    where t.ctid = any (array(
        select x.ctid from fairqueue.fq_schedule x
        where x.in_code and x.due_at < v_week order by x.due_at limit p_limit for update skip locked
      ))
    returning format('%s of channel %s of queue %s', t.name, t.channel, t.queue) as name
  )
  select greatest(
      (select count(*) from keys), (select count(*) from results), (select count(*) from waits),
      (select count(*) from requests), (select count(*) from audits), (select count(*) from groups),
      (select count(*) from slots), (select count(*) from vanished)
    ),
    array(select v.name from vanished v);
end
$$;
