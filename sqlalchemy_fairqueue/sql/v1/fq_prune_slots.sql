-- fq_prune_slots: delete what schedules need no more: the record of slots that were run p_age microseconds ago, and
-- schedules from code that are due since then, so that no worker has them in its code any more; up to p_limit of each.
-- Who is not the owner gives seven days or more.
-- Guarantees: no slot is run again for it: a schedule goes on after done_until alone. Several calls at once wait for
-- none and delete nothing twice.
-- Locks: the rows, skip locked. Index: fq_schedule_slot_ran_ix, fq_schedule_pkey. Errors: QF001 bad argument; QF007.
create function fairqueue.fq_prune_slots(p_age bigint, p_limit integer)
returns table (slots bigint, schedules text[])
language plpgsql
volatile
security definer
as $$
#variable_conflict use_column
declare
  c_kept constant bigint := 604800000000;
  v_before bigint := fairqueue.fq_now() - p_age;
begin
  if (p_age between 0 and 3153600000000000) is not true or (p_limit between 1 and 1000000) is not true then
    raise exception 'fq_prune_slots has age % and limit %', coalesce(p_age::text, 'null'),
      coalesce(p_limit::text, 'null')
      using errcode = 'QF001', hint = 'give an age of 0 or more microseconds, and delete 1 to 1000000 slots at once';
  end if;
  if p_age < c_kept and not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    raise exception 'fq_prune_slots has age %, of a role that may delete records of slots after seven days', p_age
      using errcode = 'QF007', hint = 'give an age of ' || c_kept || ' microseconds or more, or let the owner call it';
  end if;
  with doomed as materialized (
    select t.ctid as row
    from fairqueue.fq_schedule_slot t
    where t.ran_at < v_before
    order by t.ran_at
    limit p_limit
    for update skip locked
  )
  delete from fairqueue.fq_schedule_slot t
  using doomed u
  where t.ctid = u.row;
  get diagnostics slots = row_count;
  with doomed as materialized (
    select s.id
    from fairqueue.fq_schedule s
    where s.in_code
      and s.due_at < v_before
    limit p_limit
    for update skip locked
  ),
  gone as (
    delete from fairqueue.fq_schedule s
    using doomed u
    where s.id = u.id
    returning s.id, format('%s of channel %s of queue %s', s.name, s.channel, s.queue) as name
  ),
  recorded as (
    delete from fairqueue.fq_schedule_slot t
    using gone g
    where t.schedule_id = g.id
  )
  select coalesce(array_agg(g.name), '{}') into schedules
  from gone g;
  return next;
end
$$;
