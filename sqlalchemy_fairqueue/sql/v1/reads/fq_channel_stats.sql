-- fq_channel_stats: figures of channels of a queue, one row each, by name: the first p_limit after p_after of those in
-- p_channels (null: of all). p_busy: only those that fq_busy_channels returns.
-- Guarantees: one snapshot; times in microseconds since the epoch. backlog: undelivered messages, which are ready (due
-- by now), scheduled or held. deliverable, paused, limited: the parts of ready, as if consumers took from this channel
-- alone. behind: if none is ready, whom the first held one waits behind. served_cost: what attempts that ended since
-- served_since cost; null without a history. next_cost: of its head, if it has a max_cost_out. problem: see
-- fq_set_aside.
-- Cost: six index probes a channel of the answer, with its scheduled and prioritised messages and dead letters; the
-- queue's leased messages and signals; 2,000 rows of the history. Planned anew by each call: a plan for any arguments
-- would read all channels for one. Locks: none. Index: those of its steps. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_channel_stats(
  p_queue text, p_channels text[] default null, p_limit integer default 1000, p_after text default null,
  p_busy boolean default false
)
returns table (
  channel text, ready bigint, deliverable bigint, paused bigint, limited bigint, scheduled bigint, held bigint,
  behind bigint, leased bigint, current_concurrency integer, current_cost bigint, next_cost bigint, policy jsonb,
  backlog bigint, dropped bigint, paused_at bigint, oldest_ready_at bigint, last_dequeue_at bigint, dead bigint,
  rate_allows_at bigint, opens_at bigint, plan text, overridden text[],
  served_cost bigint, served_since bigint, problem text
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set work_mem = '64MB'
as $$
declare
  v_now bigint := fairqueue.fq_now();
  -- the columns of a state row that are no fields of a policy
  v_others text[] := array(
    select jsonb_object_keys(to_jsonb(jsonb_populate_record(null::fairqueue.fq_channel_state, '{}')))
    except
    select f.name
    from fairqueue.fq_policy_fields('policy'::text) f
  );
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_channel_stats has limit'::text, p_limit::bigint, 1::bigint, null::bigint);
  return query
  with named as materialized (
    (
      select c.id, c.name
      from fairqueue.fq_channel c
      where not p_busy
        and c.queue = p_queue
        and (p_channels is null or c.name = any (p_channels))
        and (p_after is null or c.name > p_after)
      order by c.name
      limit p_limit
    )
    union all
    (
      select c.id, c.name
      from fairqueue.fq_busy_channels(p_queue, null::text[], null::integer, null::integer) b(id)
      cross join lateral (
        select k.id, k.name
        from fairqueue.fq_channel k
        where k.id = b.id
        limit 1
      ) c
      where p_busy
        and (p_channels is null or c.name = any (p_channels))
        and (p_after is null or c.name > p_after)
      order by c.name
      limit p_limit
    )
  ),
  told as materialized (
    select g.channel_id, sum(g.added) as added, sum(g.dropped) as dropped, sum(g.freed) as freed,
      sum(g.freed_cost)::bigint as freed_cost, sum(g.queue_freed) as queue_freed
    from fairqueue.fq_signal g where g.queue = p_queue group by g.channel_id
  ),
  whole as materialized (
    select max(q.paused_at) as paused_at,
      fairqueue.fq_queue_allows(p_queue, (select sum(t.queue_freed) from told t)::bigint, v_now) as room
    from fairqueue.fq_queue q
    where q.name = p_queue
  ),
  held as materialized (
    select m.channel_id, count(*) as messages
    from fairqueue.fq_lease e
    join fairqueue.fq_message m on m.lease_id = e.id
    where e.queue = p_queue
      -- Hashed, and before the count: for one channel this takes less than half the time of a count of all.
      and (m.channel_id in (select n.id from named n)) is true
    group by m.channel_id
  ),
  served as materialized (select r.channel_id, r.cost, r.since from fairqueue.fq_recent_costs(p_queue) r)
  select n.name, r.ready, d.deliverable, d.paused, r.ready - d.paused - d.deliverable, w.scheduled, w.held,
    case when w.held > 0 and w.since is null then fairqueue.fq_behind(null::bigint, n.id::bigint) end,
    coalesce(h.messages, 0), s.current_concurrency, s.current_cost, k.next_cost,
    to_jsonb(s.*) - v_others, greatest(w.scheduled + w.held, s.backlog + coalesce(t.added, 0)),
    s.dropped + coalesce(t.dropped, 0), s.paused_at, w.since, nullif(s.last_dequeue_at, 0),
    (select count(*) from fairqueue.fq_dead_letter d where d.channel_id = n.id),
    fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst), s.due_at, f.name,
    coalesce(o.overridden, '{}'), case when e.since is not null then coalesce(u.cost, 0) end, e.since, s.problem
  from named n
  cross join lateral fairqueue.fq_newest_state(n.id::bigint) s
  left join told t on t.channel_id = n.id
  left join held h on h.channel_id = n.id
  left join served u on u.channel_id = n.id
  left join served e on num_nulls(e.channel_id) = 1
  cross join lateral fairqueue.fq_waits(n.id::bigint, v_now, null::bigint) w
  cross join lateral (select greatest(0, s.backlog + coalesce(t.added, 0) - w.scheduled - w.held)) r(ready)
  cross join whole
  cross join lateral (
    select case
        when s.max_cost_out is not null then fairqueue.fq_head_cost(p_queue, s.head_message_id, s.mean_cost)
      end as next_cost
  ) k
  cross join lateral (
    select fairqueue.fq_channel_allows(
      s.paused_at,
      fairqueue.fq_is_spent(s.max_cost_out, (s.current_cost - coalesce(t.freed_cost, 0))::bigint, k.next_cost::bigint),
      s.max_concurrency, (s.current_concurrency - coalesce(t.freed, 0))::bigint, s.rate_at, s.rate_interval, s.rate_burst, v_now
    ) as room
  ) a
  cross join lateral (
    select case when num_nonnulls(whole.paused_at, s.paused_at) = 0 then 0 else r.ready end as paused,
      greatest(0, least(r.ready, whole.room, a.room)) as deliverable
  ) d
  left join lateral (select p.* from fairqueue.fq_channel_plan p where p.channel_id = n.id limit 1) o on true
  left join fairqueue.fq_plan f on f.queue = p_queue and f.name = o.plan
  order by n.name;
end
$$;
