-- fq_enqueue_recorded: fq_enqueue, for messages that follow groups. It checks no grant: the caller that recorded such a
-- message was allowed to enqueue it, and the worker that folds the groups needs no grant for it.
-- Guarantees and results: as fq_enqueue; no caller is asked for a grant. Locks, index: as fq_enqueue_in_order, with
-- p_notify as fq_enqueue. Errors: QF001 bad argument; as fq_enqueue_in_order.
create function fairqueue.fq_enqueue_recorded(
  p_queue text,
  p_channels text[],
  p_kinds text[],
  p_contents bytea[],
  p_headers jsonb[],
  p_delays bigint[],
  p_ats bigint[],
  p_priorities integer[],
  p_keys text[],
  p_max_attempts integer[],
  p_policy jsonb,
  p_notify boolean
)
returns table (ordinal integer, message_id bigint, created boolean, outcome text)
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
#variable_conflict use_column
begin
  perform fairqueue.fq_check_messages(
    p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts, null::text[],
    null::integer[], null::uuid[]
  );
  return query
  select e.ordinal, e.message_id, e.created, e.outcome
  from fairqueue.fq_enqueue_in_order(
    p_queue, p_channels, p_kinds, p_contents, p_headers, p_delays, p_ats, p_priorities, p_keys, p_max_attempts,
    p_policy, null::text[], null::integer[], null::uuid[], null::jsonb, null::uuid,
    fairqueue.fq_now(), p_notify
  ) e;
end
$$;
