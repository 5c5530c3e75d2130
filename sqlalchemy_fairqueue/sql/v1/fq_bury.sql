-- fq_bury: move deliveries to the dead letters, in the caller's transaction. Returns the lost ones.
-- Guarantees: as fq_complete for the token; a dead letter has the whole message, the reason and the last error. A
-- message that was cancelled while it was leased is deleted without a dead letter.
-- Locks: the messages, in the order of their ids. Index: as fq_lock_deliveries. Errors: 40001; QF007.
create function fairqueue.fq_bury(
  p_queue text, p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[], p_reasons text[],
  p_errors text[]
)
returns table (message_id bigint, outcome text)
language plpgsql
security definer
as $$
declare
  v_ids bigint[];
  v_rows tid[];
  v_reasons text[];
  v_errors text[];
begin
  select array_agg(h.message_id), array_agg(h.row_id),
    array_agg(left(coalesce(p_reasons[h.ordinal], 'buried by its consumer'), 262144)),
    array_agg(left(p_errors[h.ordinal], 262144))
  into v_ids, v_rows, v_reasons, v_errors
  from fairqueue.fq_lock_deliveries(p_ids, p_rows, p_lease_ids, p_deliveries, p_queue) h;
  perform fairqueue.fq_bury_messages(p_queue, v_ids, v_rows, v_reasons, v_errors);

  return query
  select l.id, 'lost'
  from (
    select unnest(p_ids) as id
    except
    select unnest(v_ids)
  ) l;
end
$$;
