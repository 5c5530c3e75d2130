-- fq_recent_costs: what the attempts of a queue that ended lately cost, by channel, and since when they count: since
-- five minutes ago, or since the oldest of the last 2,000 attempts that all queues recorded, if that is later. One more
-- row has no channel, and the sum. No row: the queue does not record its history.
-- Cost: 2,000 rows of the history, however long it is; 400 if the 200th newest ended more than five minutes ago.
-- Locks: none. Index: fq_history_recorded_ix, fq_queue_pkey. Errors: none.
create function fairqueue.fq_recent_costs(p_queue text)
returns table (channel_id bigint, cost bigint, since bigint)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_from bigint := fairqueue.fq_now() - 300000000;
  v_limit bigint := 2000;
begin
  if not exists (
    select
    from fairqueue.fq_queue q
    where q.name = p_queue
      and q.history
  ) then
    return;
  end if;
  -- While little ends, only the last 200 are read: enough, though the order by transactions is not quite that of the
  -- ends.
  if (
    select h.finished_at
    from fairqueue.fq_history h
    order by h.recorded_xid desc, h.id desc
    offset 199
    limit 1
  ) < v_from then
    v_limit := 200;
  end if;
  return query
  with recent as materialized (
    select h.queue, h.channel_id, h.cost, h.finished_at
    from fairqueue.fq_history h
    order by h.recorded_xid desc, h.id desc
    limit v_limit
  ),
  span as (
    select case when count(*) = v_limit then greatest(v_from, min(r.finished_at)) else v_from end as since
    from recent r
  ),
  counted as (
    select r.channel_id, r.cost
    from recent r
    cross join span s
    where r.queue = p_queue
      and r.finished_at >= s.since
  )
  select c.channel_id, coalesce(sum(c.cost), 0)::bigint, s.since
  from span s
  left join counted c on true
  group by grouping sets ((s.since, c.channel_id), (s.since))
  having c.channel_id is not null or grouping(c.channel_id) = 1;
end
$$;
