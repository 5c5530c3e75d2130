-- fq_groups_due: whether fq_fold_groups has anything to do.
-- Locks: none. Index: fq_group_note_pkey from floor_xid on and by open_xids, fq_group_due_ix. Errors: none.
create function fairqueue.fq_groups_due()
returns boolean
language plpgsql
stable
security definer
as $$
declare
  v_floor xid8;
  v_open xid8[];
begin
  select f.floor_xid, f.open_xids into v_floor, v_open
  from fairqueue.fq_note_floor() f;
  return exists (
      select
      from fairqueue.fq_group_note n
      where n.xid >= v_floor
    )
    or exists (
      select
      from fairqueue.fq_group_note o
      where o.xid = any (v_open)
    )
    or exists (
      select
      from fairqueue.fq_group g
      where g.due_at <= fairqueue.fq_now()
    );
end
$$;
