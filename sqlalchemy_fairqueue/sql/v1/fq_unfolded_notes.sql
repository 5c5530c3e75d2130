-- fq_unfolded_notes: the notes of groups that are not folded: those of transactions from the one on that fq_round has
-- of the last fold, and of those that were open then.
-- Guarantees: one query, which the planner inlines. All notes, if the row of fq_round comes from a dump of another
-- server, whose ids may be greater. A fold writes an id that its own transaction sees, so in a row of this server it is
-- no greater than the row's xmin, unlike in a restored row.
-- Locks: none. Index: fq_round_pkey, fq_group_note_pkey. Errors: none.
create function fairqueue.fq_unfolded_notes()
returns setof fairqueue.fq_group_note
language sql
stable
as $$
  with round as materialized (
    select f.snapshot::xid8 as floor, f.waiting::xid8[] as open
    from fairqueue.fq_round f
    where f.duty = 'fold'
      and case when f.duty = 'fold' then f.snapshot::xid8 end <= pg_snapshot_xmax(pg_current_snapshot())
      and case when f.duty = 'fold' then age(f.xmin) <= age(f.snapshot::xid8::xid) end
  )
  select o.*
  from fairqueue.fq_group_note o
  where o.xid = any (array(select unnest(r.open) from round r))
  union all
  select n.*
  from fairqueue.fq_group_note n
  where n.xid >= coalesce((select r.floor from round r), '0'::xid8)
$$;
