-- fq_make_gate: make the gate of a queue that has none, for its first delivery. False: another transaction that makes
-- it has not ended within a few milliseconds; nothing was made.
-- Guarantees: the parts are there, and the caller sees them. Nobody waits for longer than 5 ms.
-- Locks: first delivery of a queue waits that long for another transaction that makes the gate. Index: fq_gate_pkey.
-- Errors: none.
create function fairqueue.fq_make_gate(p_queue text)
returns boolean
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
set lock_timeout = '5ms'
as $$
begin
  insert into fairqueue.fq_gate (queue, part)
  select p_queue, i.i
  from generate_series(-1, 63) i(i)
  on conflict (queue, part) do nothing;
  return true;
exception
  when lock_not_available then
    return false;
end
$$;
