-- fq_release: give deliveries back, their attempt not counted, in the caller's transaction. Returns the lost ones.
-- p_delays: microseconds from now (null or 0: the message keeps its place in the channel). p_notify: wake waiting
-- consumers (not in a two-phase transaction).
-- Guarantees: as fq_complete for the token. A message that was cancelled while it was leased is deleted instead.
-- Locks: the messages, in the order of their ids. Index: as fq_lock_deliveries. Errors: QF001 bad delay; 40001; QF007.
create function fairqueue.fq_release(
  p_queue text, p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[], p_delays bigint[],
  p_notify boolean default false
)
returns table (message_id bigint, outcome text)
language plpgsql
security definer
as $$
declare
  v_ids bigint[];
  v_rows tid[];
  v_delays bigint[];
begin
  if 0 > any (p_delays) or 3153600000000000 < any (p_delays) then
    raise exception 'fq_release has a delay below zero or above 100 years'
      using errcode = 'QF001', hint = 'give delays of 0 to 3153600000000000 microseconds';
  end if;
  select array_agg(h.message_id), array_agg(h.row_id), array_agg(p_delays[h.ordinal])
  into v_ids, v_rows, v_delays
  from fairqueue.fq_lock_deliveries(p_ids, p_rows, p_lease_ids, p_deliveries, p_queue) h;
  perform fairqueue.fq_return_messages(
    p_queue, v_ids, v_rows, v_delays, null::text[], 1::integer, 'released'::text
  );
  if p_notify and v_ids is not null then
    perform fairqueue.fq_wake(p_queue);
  end if;

  return query
  select l.id, 'lost'
  from (
    select unnest(p_ids) as id
    except
    select unnest(v_ids)
  ) l;
end
$$;
