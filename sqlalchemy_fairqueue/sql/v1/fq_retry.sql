-- fq_retry: try deliveries again later, their attempt counted, in the caller's transaction; a message out of attempts becomes a dead letter.
-- Guarantees: as fq_complete for the token; p_delays in microseconds from now (null or 0: where it stood). Returns the lost and the buried ones.
-- Locks: the messages, in the order of their ids. Index: as fq_hold_deliveries. Errors: QF001 negative delay; 40001.
create function fairqueue.fq_retry(
  p_queue text, p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[], p_delays bigint[], p_errors text[]
)
returns table (message_id bigint, outcome text)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_again_ids bigint[];
  v_again_rows tid[];
  v_again_delays bigint[];
  v_again_errors text[];
  v_dead_ids bigint[];
  v_dead_rows tid[];
  v_dead_errors text[];
begin
  if 0 > any (p_delays) then
    raise exception 'fq_retry has a delay below zero'
      using errcode = 'QF001', hint = 'give delays of zero or more microseconds';
  end if;
  select
    array_agg(h.message_id) filter (where not h.exhausted),
    array_agg(h.row_id) filter (where not h.exhausted),
    array_agg(u.delay) filter (where not h.exhausted),
    array_agg(u.error) filter (where not h.exhausted),
    array_agg(h.message_id) filter (where h.exhausted),
    array_agg(h.row_id) filter (where h.exhausted),
    array_agg(u.error) filter (where h.exhausted)
  into v_again_ids, v_again_rows, v_again_delays, v_again_errors, v_dead_ids, v_dead_rows, v_dead_errors
  from fairqueue.fq_hold_deliveries(p_ids, p_rows, p_lease_ids, p_deliveries) h
  join unnest(p_ids, p_delays, p_errors) u(id, delay, error) on u.id = h.message_id;
  perform fairqueue.fq_return_messages(p_queue, v_again_ids, v_again_rows, v_again_delays, v_again_errors, 0);
  perform fairqueue.fq_bury_messages(
    p_queue, v_dead_ids, v_dead_rows, array_fill('attempts exhausted'::text, array[coalesce(cardinality(v_dead_ids), 0)]), v_dead_errors
  );

  return query
  select u.id, case when u.id = any (v_dead_ids) then 'buried' else 'lost' end
  from unnest(p_ids) u(id)
  where u.id <> all (coalesce(v_again_ids, '{}'));
end
$$;
