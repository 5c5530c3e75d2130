-- fq_fold_notes: add up to p_limit notes to the counts of their groups, in the caller's transaction, and make groups
-- due whose members have all ended. Returns how many notes were folded (p_limit: there may be more); null: another
-- transaction folds.
-- Guarantees: a note is counted once. If fewer than p_limit are folded, the next fold begins at the transactions whose
-- notes this snapshot does not have (fq_unfolded_notes).
-- Locks: as fq_lock_round; then rows that nobody else updates. Index: fq_group_pkey, those of fq_unfolded_notes.
-- Errors: none.
create function fairqueue.fq_fold_notes(p_limit integer, p_now bigint)
returns bigint
language plpgsql
as $$
declare
  v_snapshot pg_snapshot := pg_current_snapshot();
  v_folded bigint;
begin
  if not fairqueue.fq_lock_round('fold'::text) then
    return null;
  end if;

  -- One statement, so that all notes of a transaction are folded at once unless the limit is met.
  with chosen as materialized (
    select u.xid, u.id, u.group_id
    from fairqueue.fq_unfolded_notes() u
    limit p_limit
  ),
  taken as (
    delete from fairqueue.fq_group_note n
    using chosen c
    where n.xid = c.xid
      and n.id = c.id
      and n.group_id = c.group_id
    returning n.group_id, n.added, n.done, n.failed, n.cancelled
  ),
  sums as materialized (
    select t.group_id, count(*) as notes, sum(t.added) as added, sum(t.done) as done, sum(t.failed) as failed,
      sum(t.cancelled) as cancelled
    from taken t
    group by t.group_id
  ),
  counted as (
    update fairqueue.fq_group g
    set added = g.added + s.added,
      done = g.done + s.done,
      failed = g.failed + s.failed,
      cancelled = g.cancelled + s.cancelled,
      due_at = case
        when num_nulls(g.finished_at) = 1
          and g.added + s.added <= g.done + s.done + g.failed + s.failed + g.cancelled + s.cancelled
        then p_now
      end
    from sums s
    where g.group_id = s.group_id
  )
  select coalesce(sum(s.notes), 0) into v_folded
  from sums s;
  if v_folded between 1 and p_limit - 1 then
    update fairqueue.fq_round f
    set snapshot = pg_snapshot_xmax(v_snapshot)::text,
      -- this transaction, too: it may leave further notes
      waiting = array(
        select x.xid::text
        from (
          select pg_snapshot_xip(v_snapshot) as xid
          union all
          select pg_current_xact_id()
        ) x
        where x.xid < pg_snapshot_xmax(v_snapshot)
      )
    where f.duty = 'fold';
  end if;
  return v_folded;
end
$$;
