-- fq_contention: up to p_limit channels of a queue that wait longest, as many with the most leased messages, and as
-- many that have held or scheduled messages but no ready one, the longest wait first. With p_channels, p_scan and
-- p_count: these channels and those with the most leased messages, from a bounded part, as fq_busy_channels reads it.
-- Guarantees: one snapshot; counts and times as in fq_channel_stats. Each row ends with figures of the whole queue,
-- which come alone if there is no channel. waiting: channels with ready messages; rivals, rival_weight: those that
-- compete, as they have leased messages, or ready ones that nothing holds back; waits: median, 90th and 99th percentile
-- and longest; served_cost, of queue_cost: what lately ended. Channels without a row count by what the dispatcher
-- knows.
-- Cost: that of fq_busy_channels, and four index probes a row and a changed channel. Locks: none. Index: those of its
-- steps. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_contention(
  p_queue text, p_limit integer default 100, p_channels text[] default null, p_scan integer default null,
  p_count integer default null
)
returns table (
  channel text, ready bigint, scheduled bigint, held bigint, behind bigint, leased bigint,
  current_concurrency integer, max_concurrency integer, rate_interval bigint, rate_burst integer, weight integer,
  paused_at bigint, oldest_ready_at bigint, last_dequeue_at bigint, rate_allows_at bigint, opens_at bigint,
  waiting bigint, rivals bigint, rival_weight bigint, messages_out bigint, waits bigint[], served_cost bigint,
  queue_cost bigint, queue_paused_at bigint, queue_concurrency integer, queue_max_concurrency integer,
  queue_rate_allows_at bigint, queue_noted_at bigint, consumers boolean, rate_of text, max_cost_out integer,
  current_cost bigint, next_cost bigint, queue_max_cost_out integer, queue_current_cost bigint, queue_next_cost bigint
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set work_mem = '64MB'
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  if (least(p_limit, p_scan, p_count) >= 1) is not true or num_nulls(p_limit, p_channels, p_scan, p_count) in (1, 2)
    or p_limit is null
  then
    raise exception 'fq_contention has limit %, scan %, count %', p_limit, p_scan, p_count
      using errcode = 'QF001', hint = 'ask for 1 channel or more; with channels, let 1 message out or more be counted';
  end if;
  return query
  with busy as materialized (
    select b.*, nullif(b.last_dequeue_at, 0) as served_at, b.backlog + b.added as messages,
      b.head_dequeue_at as head,
      fairqueue.fq_rate_allows_at(b.rate_at, b.rate_interval, b.rate_burst) as allowed_at,
      fairqueue.fq_is_spent(b.max_cost_out, b.current_cost, b.next_cost::bigint) as spent
    from fairqueue.fq_busy_channels(p_queue, p_channels, p_scan, p_count) b
  ),
  -- Channels whose messages are looked at; with a bound, those with the most leased ones.
  ranked as materialized (
    (select h.channel_id from busy h where h.leased * p_scan > 0 order by h.leased desc, h.channel_id limit p_limit)
    union all
    (
      select r.channel_id from busy r
      where p_scan is null and not r.changed and r.head <= v_now order by r.head limit 2 * p_limit::bigint
    )
    union all
    (
      select l.channel_id from busy l
      where p_scan is null and not l.changed and l.head > v_now
      order by nullif(l.head, 9223372036854775807) nulls first limit p_limit
    )
  ),
  picked as (
    select b.*,
      b.named or p_scan is null and b.changed or b.channel_id in (select r.channel_id from ranked r) as is_picked
    from busy b
  ),
  looked as materialized (
    select p.*, d.scheduled, w.held, greatest(0, p.messages - d.scheduled - w.held) as ready, w.since
    from picked p
    cross join lateral fairqueue.fq_waits(p.channel_id, v_now, p_scan::bigint) w
    cross join lateral (
      select case when p_scan > 0 and w.since is null then greatest(0, p.messages - w.held) else w.scheduled end
    ) d(scheduled)
    where p.is_picked
  ),
  whole as materialized (
    select count(b.since) as waiting, count(*) filter (where b.leased > 0 or b.competes) as rivals,
      sum(b.weight) filter (where b.leased > 0 or b.competes) as rival_weight, sum(b.leased) as messages_out,
      percentile_disc(array[0.5, 0.1, 0.01, 0]) within group (order by v_now - b.since desc) as waits
    from (
      select n.*,
        n.since is not null and n.paused_at is null and (n.current_concurrency < n.max_concurrency) is not false
        and not n.spent and (n.allowed_at > v_now or n.allowed_at = n.opens_at) is not true as competes
      from (
        select l.weight, l.leased, l.paused_at, l.current_concurrency, l.max_concurrency, l.spent, l.allowed_at,
          l.opens_at, l.since
        from looked l
        union all
        select p.weight, p.leased, p.paused_at, p.current_concurrency, p.max_concurrency, p.spent, p.allowed_at,
          p.opens_at, case when p.due_at <= v_now then p.due_at end
        from picked p
        where not p.is_picked
      ) n
    ) b
  ),
  costs as materialized (
    select r.channel_id, r.cost
    from fairqueue.fq_recent_costs(
      (select q.name from fairqueue.fq_queue q where q.name = p_queue and q.fair_by <> 'messages')::text
    ) r
  ),
  shown as materialized (
    (select l.* from looked l where l.since is not null order by l.since, l.channel_id limit p_limit)
    union
    (select l.* from looked l where l.leased > 0 order by l.leased desc, l.channel_id limit p_limit)
    union
    (
      select l.* from looked l where l.scheduled + l.held > 0 and l.since is null
      order by l.held = 0, l.head, l.channel_id limit p_limit
    )
    union
    select l.* from looked l where l.named
  )
  select c.name, s.ready, s.scheduled, s.held,
    case when s.held > 0 and s.since is null then fairqueue.fq_behind(null::bigint, s.channel_id::bigint) end,
    s.leased, s.current_concurrency, s.max_concurrency, s.rate_interval, s.rate_burst, s.weight, s.paused_at, s.since,
    s.served_at, s.allowed_at, s.opens_at, w.waiting, w.rivals, coalesce(w.rival_weight, 0),
    coalesce(w.messages_out, 0)::bigint, coalesce(w.waits, '{}'),
    case when a.cost is not null then coalesce(u.cost, 0) end, a.cost, q.paused_at, n.current_concurrency,
    q.max_concurrency, fairqueue.fq_rate_allows_at(n.rate_at, n.rate_interval, n.rate_burst), nullif(n.noted_at, 0),
    exists (select from fairqueue.fq_lease e where e.queue = p_queue and e.expires_at > v_now), s.rate_of,
    s.max_cost_out, s.current_cost, s.next_cost, q.max_cost_out, n.current_cost, fairqueue.fq_next_cost(p_queue)
  from whole w
  left join shown s on true
  left join fairqueue.fq_channel c on c.id = s.channel_id
  left join costs u on u.channel_id = s.channel_id
  left join costs a on num_nulls(a.channel_id) = 1
  left join fairqueue.fq_queue q on q.name = p_queue
  left join fairqueue.fq_newest_dispatch(p_queue) n on true
  order by s.named desc, s.since, c.name;
end
$$;
