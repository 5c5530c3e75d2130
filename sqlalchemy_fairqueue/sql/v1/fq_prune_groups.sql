-- fq_prune_groups: delete groups that were finished p_age microseconds ago, up to p_limit of them. Returns how many.
-- Who is not the owner gives seven days or more.
-- Guarantees: an open group stays, however old. Several calls at once wait for none and delete nothing twice.
-- Locks: the rows, skip locked. Index: fq_group_finished_ix. Errors: QF001 bad argument; QF007.
create function fairqueue.fq_prune_groups(p_age bigint, p_limit integer)
returns bigint
language plpgsql
volatile
security definer
as $$
declare
  c_kept constant bigint := 604800000000;
  v_before bigint := fairqueue.fq_now() - p_age;
  v_groups bigint;
begin
  if (p_age between 0 and 3153600000000000) is not true or (p_limit between 1 and 1000000) is not true then
    raise exception 'fq_prune_groups has age % and limit %', coalesce(p_age::text, 'null'),
      coalesce(p_limit::text, 'null')
      using errcode = 'QF001', hint = 'give an age of 0 or more microseconds, and delete 1 to 1000000 groups at once';
  end if;
  if p_age < c_kept and not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    raise exception 'fq_prune_groups has age %, of a role that may delete groups after seven days', p_age
      using errcode = 'QF007', hint = 'give an age of ' || c_kept || ' microseconds or more, or let the owner call it';
  end if;
  with doomed as materialized (
    select g.group_id
    from fairqueue.fq_group g
    where g.finished_at < v_before
    order by g.finished_at
    limit p_limit
    for update skip locked
  )
  delete from fairqueue.fq_group g
  using doomed u
  where g.group_id = u.group_id;
  get diagnostics v_groups = row_count;
  return v_groups;
end
$$;
