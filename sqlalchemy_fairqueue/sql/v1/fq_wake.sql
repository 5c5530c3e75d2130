-- fq_wake: notify the waiting consumers of a queue. Returns whether there are any.
-- Guarantees: if a consumer registered its wait (fq_wait) before this call's snapshot, and the wait is not over, the
-- commit sends one notification to all listeners. Its payload is the id of one waiting lease, at random from the eight
-- waits that last longest, a colon and the queue's topic: its consumer should poll at once, the others soon, as it may
-- have died. Who registers later is not notified, so a consumer polls once more after fq_wait, and never waits for
-- ever. A two-phase transaction must not call it. While the server's notification queue is more than half full, it
-- notifies nobody: a COMMIT fails when that is full.
-- Locks: none here; a COMMIT that notifies takes a lock of the whole server. Index: fq_lease_waiting_ix, longest wait
-- first, so that old versions are read only while their waits last. Errors: none.
create function fairqueue.fq_wake(p_queue text)
returns boolean
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_payloads text[];
begin
  v_payloads := array(
    select e.id || ':' || e.tableoid || ':' || p_queue
    from fairqueue.fq_lease e
    where e.queue = p_queue
      and e.waiting_until > v_now
    order by e.queue desc, e.waiting_until desc
    limit 8
  );
  if v_payloads = '{}' or pg_notification_queue_usage() > 0.5 then
    return false;
  end if;
  -- in two parts: the whole word stands only where the loader puts the name of the schema
  perform pg_notify('fair' || 'queue', v_payloads[1 + trunc(random() * cardinality(v_payloads))::integer]);
  return true;
end
$$;
