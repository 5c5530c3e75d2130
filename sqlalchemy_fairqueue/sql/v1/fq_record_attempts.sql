-- fq_record_attempts: append attempts that have ended to the history, for fq_complete, fq_end_attempts and
-- fq_reclaim. p_attempts: by attempt an array of fq_attempt: channel_id, message_id, attempt, enqueued_at,
-- ready_at, started_at, its lease, by which the consumer is found if it is still there, what it was charged, and the
-- halves of its group's id, 0 for none. (Rows of fq_history could not be made once the user has added a column.)
-- Guarantees: one row an attempt, with the caller's transaction. Its cost is what fq_correct_costs said in this
-- transaction, or else what it was charged. It ended at p_finished_at (null: now), as p_outcome, or as 'cancelled' if
-- p_cancelled says so. A message that one call reclaims and takes again counts as ready when that call began.
-- Locks: none. Index: fq_channel_pkey, fq_lease_pkey. Errors: none.
create function fairqueue.fq_record_attempts(
  p_queue text, p_attempts bigint[], p_kinds text[], p_errors text[], p_outcome text,
  p_cancelled boolean[] default null, p_finished_at bigint default null
)
returns void
language plpgsql
as $$
declare
  v_finished_at bigint := coalesce(p_finished_at, fairqueue.fq_now());
  v_told jsonb := nullif(current_setting('fq.costs', true), '');
begin
  insert into fairqueue.fq_history (
    queue, channel_id, channel, message_id, kind, consumer, attempt, enqueued_at, ready_at, started_at, finished_at,
    outcome, error, cost, group_id
  )
  select p_queue, p_attempts[a.ord][1], c.name, p_attempts[a.ord][2], a.kind,
    (select l.consumer from fairqueue.fq_lease l where l.id = p_attempts[a.ord][7]), p_attempts[a.ord][3],
    p_attempts[a.ord][4], p_attempts[a.ord][5], p_attempts[a.ord][6], v_finished_at,
    case when a.cancelled then 'cancelled' else p_outcome end, a.error,
    case
      when v_told is null then p_attempts[a.ord][8]
      else coalesce(
        (v_told ->> concat_ws(' ', p_attempts[a.ord][2], p_attempts[a.ord][6]))::bigint, p_attempts[a.ord][8]
      )
    end,
    case
      when p_attempts[a.ord][9] <> 0 or p_attempts[a.ord][10] <> 0 then
        (lpad(to_hex(p_attempts[a.ord][9]), 16, '0') || lpad(to_hex(p_attempts[a.ord][10]), 16, '0'))::uuid
    end
  from unnest(p_kinds, p_errors, p_cancelled) with ordinality a(kind, error, cancelled, ord)
  cross join lateral (
    select k.name
    from fairqueue.fq_channel k
    where k.id = p_attempts[a.ord][1]
    limit 1
  ) c;
end
$$;
