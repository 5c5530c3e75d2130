-- fq_wake: notify the consumers of a queue that sleep, if any does. Returns whether one did.
-- Guarantees: if a consumer marked itself by fq_wait before this call's snapshot, and is due to sleep on, all that
-- listen are told when the caller's transaction commits: the payload is one marked lease, by chance one of the eight
-- latest marks, a colon, and the queue's topic. The consumer that has that lease should look at once, the others soon:
-- it may have died, or have its hands full. Were all to look at once, most would find nothing. Who marks itself later,
-- or after the snapshot of a REPEATABLE READ or SERIALIZABLE caller, is not: a consumer looks once more after it marked
-- itself, and never sleeps for ever. A transaction that is to be prepared (two-phase) must not call it: PREPARE
-- TRANSACTION refuses notifications.
-- Locks: none here; a COMMIT that notifies takes a lock of the whole server, so that nothing is sent while nobody
-- sleeps.
-- Index: fq_lease_waiting_ix, the latest mark first: versions that an old snapshot keeps are read only while their
-- marks lie ahead. Errors: none.
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
  v_payloads text[];
begin
  select array_agg(s.payload) into v_payloads
  from (
    select e.id || ':' || e.tableoid || ':' || p_queue as payload
    from fairqueue.fq_lease e
    where e.queue = p_queue
      and e.waiting_until > v_now
    order by e.queue desc, e.waiting_until desc
    limit 8
  ) s;
  if v_payloads is null then
    return false;
  end if;
  -- in two parts, for the loader looks for the whole word
  perform pg_notify('fair' || 'queue', v_payloads[1 + trunc(random() * cardinality(v_payloads))::integer]);
  return true;
end
$$;
