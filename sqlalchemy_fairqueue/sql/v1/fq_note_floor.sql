-- fq_note_floor: where the notes of groups begin that are not folded: at the transaction floor_xid, and in open_xids
-- before it (null: none).
-- Guarantees: 0 if the row of fq_round comes from a dump of another server, whose ids may be greater. A fold writes an
-- id that its own transaction sees, so in a row of this server it is no greater than the row's xmin, unlike in a
-- restored row.
-- Locks: none. Index: fq_round_pkey. Errors: none.
create function fairqueue.fq_note_floor(out floor_xid xid8, out open_xids xid8[])
language plpgsql
stable
as $$
begin
  select f.snapshot::xid8, f.waiting::xid8[] into floor_xid, open_xids
  from fairqueue.fq_round f
  where f.duty = 'fold'
    and case when f.duty = 'fold' then f.snapshot::xid8 end <= fairqueue.fq_full_xid(f.xmin::xid);
  floor_xid := coalesce(floor_xid, '0'::xid8);
end
$$;
