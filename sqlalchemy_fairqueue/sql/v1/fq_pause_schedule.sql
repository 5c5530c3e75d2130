-- fq_pause_schedule: stop the slots of a schedule, or go on with them (p_paused false), in the caller's transaction.
-- Guarantees: slots of the time in which it is paused are passed over, whatever its catch_up: the first slot that is
-- run is later than the resumption. Slots that were due before the pause and not run yet are passed over, too. Messages
-- that it enqueued are delivered.
-- Locks: the schedule's row, which waits for a transaction that has it. Index: fq_schedule_name_key.
-- Errors: QF009 no such schedule; 40001; QF007.
create function fairqueue.fq_pause_schedule(p_queue text, p_channel text, p_name text, p_paused boolean)
returns void
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  perform fairqueue.fq_check_grant(array['producer', 'operator']::text[], p_queue, array[p_channel]::text[]);
  update fairqueue.fq_schedule s
  set paused_at = case when p_paused then v_now end,
    due_at = case when not p_paused then v_now end,
    done_until = case when p_paused then s.done_until else v_now end,
    next_at = null,
    revision = s.revision + 1
  where s.queue = p_queue
    and s.channel = p_channel
    and s.name = p_name
    and (num_nulls(s.paused_at) = 1) = p_paused;
  if not found and not exists (
    select
    from fairqueue.fq_schedule s
    where s.queue = p_queue
      and s.channel = p_channel
      and s.name = p_name
  ) then
    raise exception 'channel % of queue % has no schedule %',
      quote_literal(left(p_channel, 80)), quote_literal(left(p_queue, 80)), quote_literal(left(p_name, 80))
      using errcode = 'QF009', hint = 'correct the name or the channel';
  end if;
end
$$;
