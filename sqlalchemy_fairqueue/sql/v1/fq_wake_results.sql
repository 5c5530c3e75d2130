-- fq_wake_results: notify those who wait for results of messages, at the commit of the caller's transaction. Returns
-- whether anybody is notified.
-- Guarantees: one notification for each message with a wait (fq_wait_for_result) that this call's snapshot sees and
-- that is not over. Its payload is the message's id, the oid of fq_result_wait and the queue, with colons between.
-- While the server's notification queue is more than half full, it notifies nobody: waiters poll. A two-phase
-- transaction must not call it: PREPARE TRANSACTION refuses notifications.
-- Locks: none here. A COMMIT that notifies takes a lock of the whole server, so it sends nothing while nobody waits.
-- Index: fq_result_wait_pkey. Errors: none.
create function fairqueue.fq_wake_results(p_queue text, p_ids bigint[])
returns boolean
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_payloads text[];
begin
  select array_agg(distinct w.message_id || ':' || w.tableoid || ':' || p_queue) into v_payloads
  from fairqueue.fq_result_wait w
  where w.message_id = any (p_ids)
    and w.waiting_until > v_now;
  if v_payloads is null or pg_notification_queue_usage() > 0.5 then
    return false;
  end if;
  -- in two parts: the whole word stands only where the loader puts the name of the schema
  perform pg_notify('fair' || 'queue', p.payload)
  from unnest(v_payloads) p(payload);
  return true;
end
$$;
