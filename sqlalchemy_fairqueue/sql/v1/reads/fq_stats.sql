-- fq_stats: figures of a queue, in one row, even if nobody knows the queue.
-- Guarantees: one snapshot; times and counts as in fq_channel_stats. ready is the sum of deliverable (consumers could
-- take them now), paused and limited (limits and rates hold them back). consumers: those with a lease that has not
-- expired; signals: unheard ones. current_concurrency, current_cost: what counts against the queue's limits, as far as
-- the dispatcher knows (null: it has no dispatch row, which was written at noted_at); next_cost: of the first ready
-- message.
-- Cost: one state row and one index probe a channel with messages; three more for a channel with a signal, a leased
-- message or aging priorities, and for the hundred with the oldest heads; scheduled and prioritised messages; leased
-- ones, dead letters, signals; 2,000 rows of the history; the index of names. Locks: none. Index: those of its steps,
-- fq_channel_state_dropped_ix, fq_dead_letter_died_ix. Errors: QF007.
create function fairqueue.fq_stats(p_queue text)
returns table (
  channels bigint, ready bigint, deliverable bigint, paused bigint, limited bigint, scheduled bigint, held bigint,
  leased bigint, dead bigint, last_died_at bigint, dropped bigint, oldest_ready_at bigint, paused_at bigint,
  max_concurrency integer, current_concurrency integer, max_cost_out integer, current_cost bigint, next_cost bigint,
  rate_interval bigint, rate_burst integer, rate_of text, rate_allows_at bigint, noted_at bigint, signals bigint,
  consumers bigint, served_cost bigint, served_since bigint
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
  return query
  with busy as materialized (
    select k.channel_id, k.head_dequeue_at as head, k.changed, k.paused_at, k.backlog + k.added as backlog,
      fairqueue.fq_channel_allows(
        k.paused_at,
        fairqueue.fq_is_spent(k.max_cost_out, (k.current_cost - k.freed_cost)::bigint, k.next_cost::bigint),
        k.max_concurrency, (k.current_concurrency - k.freed)::bigint, k.rate_at, k.rate_interval, k.rate_burst, v_now
      ) as room
    from fairqueue.fq_busy_channels(p_queue, null::text[], null::integer, null::integer) k
  ),
  counted as materialized (
    select coalesce(sum(w.scheduled), 0)::bigint as scheduled,
      coalesce(sum(greatest(0, w.backlog - w.scheduled)), 0)::bigint as ready,
      coalesce(sum(greatest(0, w.backlog - w.scheduled)) filter (where w.paused_at is not null), 0)::bigint as paused,
      coalesce(sum(greatest(0, least(w.backlog - w.scheduled, w.room))), 0)::bigint as open
    from (
      -- The messages of a channel whose head is due later are all scheduled.
      select b.paused_at, b.room, b.backlog,
        case
          when not b.changed and b.head > v_now then b.backlog
          else (
            select count(*)
            from fairqueue.fq_message m
            where m.channel_id = b.channel_id
              and m.lease_id is null
              and m.dequeue_at > v_now
          )
        end as scheduled
      from busy b
      offset 0
    ) w
  ),
  oldest as materialized (
    select min(w.since) as since
    from (
      select b.channel_id
      from busy b
      where b.changed
      union all
      (
        select b.channel_id
        from busy b
        where not b.changed
          and b.head <= v_now
        order by b.head
        limit 100
      )
    ) p
    cross join lateral fairqueue.fq_waits(p.channel_id, v_now, null::bigint) w
  ),
  signals as materialized (
    select count(*) as signals, sum(g.dropped) as dropped, sum(g.queue_freed) as freed
    from fairqueue.fq_signal g
    where g.queue = p_queue
  )
  select
    (select count(*) from fairqueue.fq_channel c where c.queue = p_queue),
    l.ready,
    d.deliverable,
    d.paused,
    l.ready - d.paused - d.deliverable,
    greatest(0, l.scheduled - w.held),
    w.held,
    (
      select count(*)
      from fairqueue.fq_lease e
      join fairqueue.fq_message m on m.lease_id = e.id
      where e.queue = p_queue
    ),
    (select count(*) from fairqueue.fq_dead_letter d where d.queue = p_queue),
    (select max(d.died_at) from fairqueue.fq_dead_letter d where d.queue = p_queue),
    coalesce(t.dropped, 0) + (
      select coalesce(sum(s.dropped), 0)::bigint
      from fairqueue.fq_channel_state s
      where s.queue = p_queue
        and s.dropped > 0
    ),
    o.since,
    q.paused_at, q.max_concurrency, n.current_concurrency,
    q.max_cost_out, n.current_cost, fairqueue.fq_next_cost(p_queue), nullif(q.rate_interval, 0),
    case when q.rate_interval > 0 then q.rate_burst end, q.rate_of,
    fairqueue.fq_rate_allows_at(n.rate_at, n.rate_interval, n.rate_burst), nullif(n.noted_at, 0),
    t.signals, (
      select count(distinct e.consumer)
      from fairqueue.fq_lease e
      where e.queue = p_queue and e.expires_at > v_now
    ),
    c.cost, c.since
  from counted l
  cross join oldest o
  cross join signals t
  left join fairqueue.fq_newest_dispatch(p_queue) n on true
  left join fairqueue.fq_queue q on q.name = p_queue
  cross join lateral (
    select count(*) as held
    from fairqueue.fq_message m
    join fairqueue.fq_channel c on c.id = m.channel_id and c.queue = p_queue
    where m.dequeue_at = 9223372036854775807
  ) w
  cross join lateral (
    select case when q.paused_at is null then l.paused else l.ready end as paused,
      greatest(0, least(l.open, fairqueue.fq_queue_allows(p_queue, t.freed::bigint, v_now))) as deliverable
  ) d
  left join fairqueue.fq_recent_costs(p_queue) c on num_nulls(c.channel_id) = 1;
end
$$;
