-- fq_groups: up to p_limit groups of a queue, the newest first, or with p_group_id that one; no row: there is none, or
-- it is finished and pruned. p_open: only groups that are not finished, or with false only finished ones (null: both).
-- p_before_at, p_before_id: created_at and id of the last row of the page before. The counts are those of this moment,
-- with notes that are not folded yet and what the transaction itself has done. Times are microseconds since the epoch.
-- Cost: the groups that are returned, and the notes that are not folded: those of the last second, if workers run.
-- Locks: none. Index: fq_group_queue_ix, fq_group_pkey, those of fq_unfolded_notes.
-- Errors: QF001 bad limit; QF007.
create function fairqueue.fq_groups(
  p_queue text, p_group_id uuid, p_open boolean, p_before_at bigint, p_before_id uuid, p_limit integer
)
returns table (
  group_id uuid, added bigint, done bigint, failed bigint, cancelled bigint, created_at bigint, finished_at bigint,
  message_id bigint, problem text
)
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
as $$
begin
  perform fairqueue.fq_check_grant(
    array['producer', 'monitor', 'operator']::text[], p_queue,
    (case when num_nonnulls(p_group_id) = 1 then '{}' end)::text[]
  );
  perform fairqueue.fq_check_number('fq_groups has limit'::text, p_limit::bigint, 1::bigint, 100000::bigint);
  return query
  with page as materialized (
    select g.*
    from fairqueue.fq_group g
    where g.queue = p_queue
      and (p_group_id is null or g.group_id = p_group_id)
      and (p_open is null or p_open = (g.finished_at is null))
      and (p_before_at is null or (g.created_at, g.group_id) < (p_before_at, p_before_id))
    order by g.queue desc, g.created_at desc, g.group_id desc
    limit p_limit
  ),
  since as materialized (
    select u.group_id, sum(u.added)::bigint as added, sum(u.done)::bigint as done, sum(u.failed)::bigint as failed,
      sum(u.cancelled)::bigint as cancelled
    from fairqueue.fq_unfolded_notes() u
    group by u.group_id
  )
  select p.group_id, p.added + coalesce(s.added, 0), p.done + coalesce(s.done, 0), p.failed + coalesce(s.failed, 0),
    p.cancelled + coalesce(s.cancelled, 0), p.created_at, p.finished_at, p.message_id, p.problem
  from page p
  left join since s on s.group_id = p.group_id
  order by p.created_at desc, p.group_id desc;
end
$$;
