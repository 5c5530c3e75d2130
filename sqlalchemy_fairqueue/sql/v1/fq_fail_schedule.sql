-- fq_fail_schedule: note why a worker could not plan or run a schedule, in the caller's transaction, and let workers
-- try it again after p_delay microseconds. p_revision and p_done_until: as fq_due_schedules returned them. Returns
-- whether it was noted.
-- Guarantees: nothing is noted if a worker has gone on with the schedule or it was changed meanwhile. No slot is passed
-- over: slots that are late by then go by its catch_up.
-- Locks: the schedule's row, skip locked. Index: fq_schedule_pkey. Errors: QF001 bad delay; QF007.
create function fairqueue.fq_fail_schedule(
  p_id bigint, p_revision bigint, p_done_until bigint, p_problem text, p_delay bigint
)
returns boolean
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_queue text;
begin
  perform fairqueue.fq_check_number(
    'fq_fail_schedule has delay'::text, p_delay::bigint, 0::bigint, 3153600000000000::bigint
  );
  select s.queue into v_queue
  from fairqueue.fq_schedule s
  where s.id = p_id
    and s.revision = p_revision
    and s.done_until = p_done_until
    and num_nulls(s.paused_at) = 1
  for no key update skip locked;
  if not found then
    return false;
  end if;
  perform fairqueue.fq_check_grant(array['consumer']::text[], v_queue, null::text[]);
  update fairqueue.fq_schedule s
  set problem = left(coalesce(p_problem, 'unknown'), 2000),
    problem_at = v_now,
    due_at = v_now + p_delay
  where s.id = p_id;
  return true;
end
$$;
