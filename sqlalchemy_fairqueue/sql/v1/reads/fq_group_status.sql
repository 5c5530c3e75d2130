-- fq_group_status: a group of a queue as it stands, what is not folded yet included, and what the transaction itself
-- has done. No row: there is none, or it was finished so long ago that it is pruned. Times are microseconds since the
-- epoch.
-- Locks: none. Index: fq_group_pkey, fq_group_note_pkey from floor_xid on and by open_xids: it reads the notes that
-- workers have not folded.
-- Errors: QF007.
create function fairqueue.fq_group_status(p_queue text, p_group_id uuid)
returns table (
  added bigint, done bigint, failed bigint, cancelled bigint, created_at bigint, finished_at bigint, message_id bigint,
  problem text
)
language plpgsql
stable
security definer
as $$
#variable_conflict use_column
declare
  v_floor xid8;
  v_open xid8[];
begin
  perform fairqueue.fq_check_grant(array['producer', 'monitor', 'operator']::text[], p_queue, '{}'::text[]);
  select f.floor_xid, f.open_xids into v_floor, v_open
  from fairqueue.fq_note_floor() f;
  return query
  select g.added + n.added, g.done + n.done, g.failed + n.failed, g.cancelled + n.cancelled, g.created_at,
    g.finished_at, g.message_id, g.problem
  from fairqueue.fq_group g
  cross join lateral (
    select coalesce(sum(x.added), 0)::bigint as added, coalesce(sum(x.done), 0)::bigint as done,
      coalesce(sum(x.failed), 0)::bigint as failed, coalesce(sum(x.cancelled), 0)::bigint as cancelled
    from (
      select b.added, b.done, b.failed, b.cancelled
      from fairqueue.fq_group_note b
      where b.group_id = g.group_id
        and b.xid >= v_floor
      union all
      select o.added, o.done, o.failed, o.cancelled
      from fairqueue.fq_group_note o
      where o.group_id = g.group_id
        and o.xid = any (v_open)
    ) x
  ) n
  where g.group_id = p_group_id
    and g.queue = p_queue;
end
$$;
