-- fq_retry: give deliveries back to be tried again later, their attempts counted, in the caller's transaction; a
-- message out of attempts becomes a dead letter. Returns the lost and the buried ones. p_delays: microseconds from now
-- (null or 0: the message keeps its place in the channel). p_notify: wake waiting consumers (not in a two-phase
-- transaction).
-- Guarantees: as fq_complete for the token. The first 262,144 characters of an error are kept. A message that was
-- cancelled while it was leased is deleted instead, and is neither lost nor buried.
-- Locks: the messages, in the order of their ids. Index: as fq_lock_deliveries. Errors: QF001 bad delay; 40001; QF007.
create function fairqueue.fq_retry(
  p_queue text, p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[], p_delays bigint[],
  p_errors text[], p_notify boolean default false
)
returns table (message_id bigint, outcome text)
language plpgsql
security definer
as $$
declare
  v_again_ids bigint[];
  v_again_rows tid[];
  v_again_delays bigint[];
  v_again_errors text[];
  v_dead_ids bigint[];
  v_dead_rows tid[];
  v_dead_errors text[];
  v_buried bigint[];
begin
  if 0 > any (p_delays) or 3153600000000000 < any (p_delays) then
    raise exception 'fq_retry has a delay below zero or above 100 years'
      using errcode = 'QF001', hint = 'give delays of 0 to 3153600000000000 microseconds';
  end if;
  select
    array_agg(h.message_id) filter (where not h.exhausted),
    array_agg(h.row_id) filter (where not h.exhausted),
    array_agg(p_delays[h.ordinal]) filter (where not h.exhausted),
    array_agg(left(p_errors[h.ordinal], 262144)) filter (where not h.exhausted),
    array_agg(h.message_id) filter (where h.exhausted),
    array_agg(h.row_id) filter (where h.exhausted),
    array_agg(left(p_errors[h.ordinal], 262144)) filter (where h.exhausted)
  into v_again_ids, v_again_rows, v_again_delays, v_again_errors, v_dead_ids, v_dead_rows, v_dead_errors
  from fairqueue.fq_lock_deliveries(p_ids, p_rows, p_lease_ids, p_deliveries, p_queue) h;
  perform fairqueue.fq_return_messages(
    p_queue, v_again_ids, v_again_rows, v_again_delays, v_again_errors, 0::integer, 'retried'::text
  );
  v_buried := fairqueue.fq_bury_messages(
    p_queue, v_dead_ids, v_dead_rows,
    array_fill('attempts exhausted'::text, array[coalesce(cardinality(v_dead_ids), 0)])::text[], v_dead_errors
  );
  if p_notify and v_again_ids is not null then
    perform fairqueue.fq_wake(p_queue);
  end if;

  return query
  select u.id, 'buried'
  from unnest(v_buried) u(id)
  union all
  select l.id, 'lost'
  from (
    select unnest(p_ids) as id
    except
    select unnest(v_again_ids || v_dead_ids)
  ) l;
end
$$;
