-- fq_note_floor: where the notes of groups begin that are not folded: floor_xid, and open_xids below it (null: none).
-- Guarantees: 0 if the row of fq_group_fold comes from a dump of another server, which may have been further. A fold
-- writes the ids that its own transaction sees, so that the floor is no greater than the xmin of the row that it
-- writes; the xmin of a restored row is an id of this server.
-- Locks: none. Index: fq_group_fold_pkey. Errors: none.
create function fairqueue.fq_note_floor(out floor_xid xid8, out open_xids xid8[])
language plpgsql
stable
as $$
begin
  select f.floor_xid, f.open_xids::text[]::xid8[] into floor_xid, open_xids
  from fairqueue.fq_group_fold f
  where f.single = 1
    and f.floor_xid <= fairqueue.fq_full_xid(f.xmin::xid);
  floor_xid := coalesce(floor_xid, '0'::xid8);
end
$$;
