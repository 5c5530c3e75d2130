-- fq_end_attempts: end deliveries without completing them, in the caller's transaction. p_note: written on those that
-- are given back.
-- Guarantees: as in version 1. Locks, index: as fq_lock_deliveries. Errors: QF001 bad delay or outcome; 40001.
create function fairqueue.fq_end_attempts(
  p_queue text, p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[], p_outcome text,
  p_delays bigint[], p_errors text[], p_reasons text[] default null, p_notify boolean default false,
  p_note text default null
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
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_ids bigint[];
  v_rows tid[];
  v_delays bigint[];
  v_errors text[];
  v_dead_ids bigint[];
  v_dead_rows tid[];
  v_dead_errors text[];
  v_reasons text[];
  v_buried bigint[];
begin
  if (p_outcome in ('retried', 'released', 'buried')) is not true
    or 0 > any (p_delays) or 3153600000000000 < any (p_delays)
  then
    raise exception 'fq_end_attempts has outcome %, or a delay below zero or above 100 years', left(p_outcome, 80)
      using errcode = 'QF001', hint = 'give retried, released or buried, and delays of 0 to 3153600000000000 microseconds';
  end if;
  select
    array_agg(h.message_id) filter (where not h.dies),
    array_agg(h.row_id) filter (where not h.dies),
    array_agg(p_delays[h.ordinal]) filter (where not h.dies),
    array_agg(left(p_errors[h.ordinal], 262144)) filter (where not h.dies),
    array_agg(h.message_id) filter (where h.dies),
    array_agg(h.row_id) filter (where h.dies),
    array_agg(left(p_errors[h.ordinal], 262144)) filter (where h.dies),
    array_agg(left(coalesce(p_reasons[h.ordinal], h.reason), 262144)) filter (where h.dies)
  into v_ids, v_rows, v_delays, v_errors, v_dead_ids, v_dead_rows, v_dead_errors, v_reasons
  from (
    select l.*, p_outcome = 'buried' or p_outcome = 'retried' and l.exhausted as dies,
      case p_outcome when 'buried' then 'buried by its consumer' else 'attempts exhausted' end as reason
    from fairqueue.fq_lock_deliveries(p_ids, p_rows, p_lease_ids, p_deliveries, p_queue) l
  ) h;
  perform fairqueue.fq_return_messages(
    p_queue, v_ids, v_rows, v_delays, v_errors, (p_outcome = 'released')::integer, p_outcome
  );
  v_buried := fairqueue.fq_bury_messages(p_queue, v_dead_ids, v_dead_rows, v_reasons, v_dead_errors);
  if p_note is not null then
    perform fairqueue.fq_add_note(v_ids, p_note);
  end if;
  if p_notify and v_ids is not null then
    perform fairqueue.fq_wake(p_queue);
  end if;

  return query
  select u.id, 'buried'
  from unnest(v_buried) u(id)
  where p_outcome = 'retried'
  union all
  select l.id, 'lost'
  from (
    select unnest(p_ids) as id
    except
    select unnest(v_ids || v_dead_ids)
  ) l;
end
$$;
