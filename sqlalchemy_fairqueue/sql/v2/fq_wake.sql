-- fq_wake: notify the consumers of a queue that sleep, if any does. Returns whether one did.
-- Guarantees: whoever marked itself by fq_wait before this call's snapshot, and is due to sleep on, is told when the caller's transaction commits.
-- Who marks itself later, or after the snapshot of a REPEATABLE READ or SERIALIZABLE caller, is not: a consumer looks once more after it marked itself,
-- and never sleeps for ever. A transaction that is to be prepared (two-phase) must not call it: PREPARE TRANSACTION refuses notifications.
-- Locks: none here; a COMMIT that notifies takes a lock of the whole server, so that nothing is sent while nobody sleeps.
-- Index: fq_lease_waiting_ix, the latest mark first: versions that an old snapshot keeps are read only while their marks lie ahead. Errors: none.
create function fairqueue.fq_wake(p_queue text)
returns boolean
language plpgsql
volatile
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
  v_topic text;
begin
  select e.tableoid || ':' || p_queue into v_topic
  from fairqueue.fq_lease e
  where e.queue = p_queue
    and e.waiting_until > v_now
  order by e.queue desc, e.waiting_until desc
  limit 1;
  if v_topic is null then
    return false;
  end if;
  -- in two parts, for the loader looks for the whole word
  perform pg_notify('fair' || 'queue', v_topic);
  return true;
end
$$;
