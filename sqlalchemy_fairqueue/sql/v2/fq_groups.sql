-- fq_groups: groups of a queue, the newest first. p_open: only those that are not finished, or with false only those
-- that are; null: both. p_before_at with p_before_id: only those before that one of the order. The counts are those
-- that are folded. Times are microseconds since the epoch.
-- Locks: none. Index: fq_group_queue_ix. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_groups(
  p_queue text, p_open boolean, p_before_at bigint, p_before_id uuid, p_limit integer
)
returns table (
  group_id uuid,
  added bigint,
  done bigint,
  failed bigint,
  cancelled bigint,
  created_at bigint,
  finished_at bigint,
  message_id bigint,
  problem text
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  if (p_limit between 1 and 100000) is not true then
    raise exception 'fq_groups has limit %', coalesce(p_limit::text, 'null')
      using errcode = 'QF001', hint = 'list 1 to 100000 groups at once';
  end if;
  return query
  select g.group_id, g.added, g.done, g.failed, g.cancelled, g.created_at, g.finished_at, g.message_id, g.problem
  from fairqueue.fq_group g
  where g.queue = p_queue
    and (num_nulls(p_open) = 1 or p_open = (num_nulls(g.finished_at) = 1))
    and (
      num_nulls(p_before_at) = 1
      or (g.created_at, g.group_id) < (p_before_at, p_before_id)
    )
  order by g.queue desc, g.created_at desc, g.group_id desc
  limit p_limit;
end
$$;
