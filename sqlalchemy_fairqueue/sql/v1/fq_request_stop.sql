-- fq_request_stop: ask the workers of a queue that have the name p_consumer to stop, in the caller's transaction. p_by:
-- who asks (null: the caller's role). Returns whether a consumer of that name has a lease that has not expired.
-- Guarantees: every worker with that name that had started when this commits finds the request at its next poll, even
-- if it has no lease, and even if somebody asked before; none that starts later obeys it.
-- Locks: the row of this consumer alone, until the transaction ends; waits for another request to it, and for
-- housekeeping that deletes an old one. Two transactions that ask the same consumers in different orders can deadlock.
-- Index: fq_stop_request_pkey, fq_lease_expires_ix. Errors: QF001 bad name; QF007.
create function fairqueue.fq_request_stop(p_queue text, p_consumer text, p_by text)
returns boolean
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_by text := coalesce(p_by, fairqueue.fq_caller()::text);
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue,consumer,name}'::text[], array[p_queue, p_consumer, v_by]::text[]);
  insert into fairqueue.fq_stop_request as r (queue, consumer, requested_by, requested_at)
  values (p_queue, p_consumer, v_by, v_now)
  on conflict on constraint fq_stop_request_pkey do update
  set requested_by = excluded.requested_by,
    requested_at = greatest(excluded.requested_at, r.requested_at + 1);
  return exists (
    select
    from fairqueue.fq_lease e
    where e.queue = p_queue
      and e.expires_at > v_now
      and e.consumer = p_consumer
  );
end
$$;
