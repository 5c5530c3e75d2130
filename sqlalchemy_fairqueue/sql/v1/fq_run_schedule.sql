-- fq_run_schedule: enqueue the message of a schedule now, in the caller's transaction; its slots stay as they are.
-- Returns the message's id; null: the channel is full, and its policy is to drop. p_notify: as fq_enqueue.
-- Guarantees: one message, even if the schedule is paused. Its header "scheduled_for" has the time of the call.
-- Locks: as fq_enqueue of a message without a key. Index: fq_schedule_name_key. Errors: QF009 no such schedule; QF005
-- the channel is full; as fq_enqueue.
create function fairqueue.fq_run_schedule(p_queue text, p_channel text, p_name text, p_notify boolean)
returns bigint
language plpgsql
security definer
as $$
declare
  v_schedule fairqueue.fq_schedule;
  v_message_id bigint;
  v_outcome text;
begin
  perform fairqueue.fq_check_grant(array['producer', 'operator']::text[], p_queue, array[p_channel]::text[]);
  select s.* into v_schedule
  from fairqueue.fq_schedule s
  where s.queue = p_queue
    and s.channel = p_channel
    and s.name = p_name;
  if not found then
    raise exception 'channel % of queue % has no schedule %',
      quote_literal(left(p_channel, 80)), quote_literal(left(p_queue, 80)), quote_literal(left(p_name, 80))
      using errcode = 'QF009', hint = 'correct the name or the channel';
  end if;
  select e.message_id, e.outcome into v_message_id, v_outcome
  from fairqueue.fq_enqueue(
    p_queue, array[p_channel]::text[], array[v_schedule.kind]::text[], array[v_schedule.content]::bytea[],
    array[fairqueue.fq_schedule_headers(v_schedule.headers, v_schedule.name, fairqueue.fq_now())]::jsonb[],
    array[null]::bigint[], array[null]::bigint[], array[null]::integer[], array[null]::text[],
    array[v_schedule.max_attempts]::integer[], v_schedule.policy, null::text[], p_notify, null::bigint[],
    null::integer[], null::uuid[], null::bigint[], null::boolean[], false::boolean,
    array[v_schedule.ordering_key]::text[]
  ) e;
  if v_outcome = 'full' then
    raise exception 'channel % of queue % is full', quote_literal(left(p_channel, 80)), quote_literal(left(p_queue, 80))
      using errcode = 'QF005',
        hint = 'run it again when consumers have taken messages, or configure another max_backlog of the channel';
  end if;
  return v_message_id;
end
$$;
