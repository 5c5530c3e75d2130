-- fq_end_attempts: end deliveries without completing them, in the caller's transaction. p_outcome: 'retried': they are
-- tried again, and a message out of attempts becomes a dead letter; 'released': they are given back, the attempt not
-- counted; 'buried': they become dead letters, with p_reasons. Returns the lost ones and those that a retry buried.
-- p_delays: microseconds from now (null or 0: the message keeps its place in the channel). p_notify: wake waiting
-- consumers (not in a two-phase transaction), also for what follows a dead letter.
-- Guarantees: as fq_complete for the token. The first 262,144 characters of an error are kept. A message that was
-- cancelled while it was leased is deleted instead.
-- Locks, index: as fq_lock_deliveries. Errors: QF001 bad delay or outcome; 40001; QF007.
create function fairqueue.fq_end_attempts(
  p_queue text, p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[], p_outcome text,
  p_delays bigint[], p_errors text[], p_reasons text[] default null, p_notify boolean default false
)
returns table (message_id bigint, outcome text)
language plpgsql
security definer
as $$
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
  if p_notify and num_nonnulls(v_ids, v_buried) > 0 then
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
