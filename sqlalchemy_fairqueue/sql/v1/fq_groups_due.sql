-- fq_groups_due: whether fq_fold_groups has anything to do.
-- Locks: none. Index: fq_group_due_ix, those of fq_unfolded_notes. Errors: none.
create function fairqueue.fq_groups_due()
returns boolean
language plpgsql
stable
security definer
as $$
begin
  return exists (select from fairqueue.fq_unfolded_notes() n)
    or exists (
      select
      from fairqueue.fq_group g
      where g.finished_at is null
        and g.due_at <= fairqueue.fq_now()
    );
end
$$;
