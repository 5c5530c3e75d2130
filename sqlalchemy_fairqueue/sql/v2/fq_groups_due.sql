-- fq_groups_due: whether fq_fold_groups has anything to do.
-- Locks: none. Index: fq_group_note_pkey from floor_xid on, fq_group_due_ix. Errors: none.
create function fairqueue.fq_groups_due()
returns boolean
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return exists (
      select
      from fairqueue.fq_group_note n
      where n.xid >= coalesce(
        (
          select f.floor_xid
          from fairqueue.fq_group_fold f
          where f.single = 1
            -- a restored dump may come from a server that was further
            and f.floor_xid <= pg_snapshot_xmin(pg_current_snapshot())
        ),
        '0'::xid8
      )
    )
    or exists (
      select
      from fairqueue.fq_group g
      where g.due_at <= fairqueue.fq_now()
    );
end
$$;
