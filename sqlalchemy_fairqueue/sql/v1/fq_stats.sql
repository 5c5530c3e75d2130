-- fq_stats: how a queue stands, in one row, also for a queue that nobody knows.
-- Guarantees: one snapshot; times and counts as in fq_channel_stats. consumers: those with a lease that has not
-- expired; signals: what transactions left and nobody has heard; current_concurrency: messages that count against the
-- queue's limit, null if it never had one; rate_allows_at: when the queue's rate allows its next message;
-- served_cost, served_since: as in fq_channel_stats.
-- Cost: three index probes a channel with messages, the scheduled and prioritised messages, and what the queue has of
-- leased messages, dead letters and signals not heard, and at most 10,000 entries of the history. Neither the ready
-- messages nor the state of idle channels is read; their names are counted in the index (10 million a second).
-- Locks: none. Index: fq_channel_queue_name_key, those of fq_busy_channels, fq_channel_state_newest_ix,
-- fq_channel_state_dropped_ix, fq_message_ready_ix, fq_message_lease_ix, fq_dead_letter_died_ix, fq_queue_pkey,
-- fq_queue_state_newest_ix. Errors: QF007.
create function fairqueue.fq_stats(p_queue text)
returns table (
  channels bigint,
  ready bigint,
  scheduled bigint,
  leased bigint,
  dead bigint,
  dropped bigint,
  oldest_ready_at bigint,
  paused_at bigint,
  max_concurrency integer,
  current_concurrency integer,
  rate_interval bigint,
  rate_burst integer,
  rate_allows_at bigint,
  signals bigint,
  consumers bigint,
  served_cost bigint,
  served_since bigint
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now bigint := fairqueue.fq_now();
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  return query
  with told as materialized (
    select count(*) as signals, sum(g.added) as added, sum(g.dropped) as dropped, sum(g.queue_freed) as queue_freed
    from fairqueue.fq_signal g
    where g.queue = p_queue
  ),
  ready_order as materialized (
    select sum(s.backlog) as backlog, sum(w.scheduled) as scheduled, min(w.since) as since
    from fairqueue.fq_busy_channels(p_queue) c(id)
    cross join lateral (
      select v.backlog
      from fairqueue.fq_channel_state v
      where v.channel_id = c.id
      order by v.channel_id desc, v.turn desc
      limit 1
    ) s
    cross join lateral (
      select (
        select count(*)
        from fairqueue.fq_message m
        where m.channel_id = c.id
          and m.lease_id is null
          and m.dequeue_at > v_now
      ) as scheduled,
      least(
        (
          select case when m.priority is null then m.dequeue_at else coalesce(m.returned_at, m.enqueued_at) end
          from fairqueue.fq_message m
          where m.channel_id = c.id
            and m.lease_id is null
            and m.dequeue_at between 0 and v_now
          order by m.channel_id, m.dequeue_at
          limit 1
        ),
        (
          select min(coalesce(m.returned_at, m.enqueued_at))
          from fairqueue.fq_message m
          where m.channel_id = c.id
            and m.lease_id is null
            and m.dequeue_at < 0
        )
      ) as since
    ) w
  )
  select
    (
      select count(*)
      from fairqueue.fq_channel c
      where c.queue = p_queue
    ),
    greatest(0, coalesce(l.backlog, 0) + coalesce(t.added, 0) - coalesce(l.scheduled, 0))::bigint,
    coalesce(l.scheduled, 0)::bigint,
    (
      select count(*)
      from fairqueue.fq_lease e
      join fairqueue.fq_message m on m.lease_id = e.id
      where e.queue = p_queue
    ),
    (
      select count(*)
      from fairqueue.fq_dead_letter d
      where d.queue = p_queue
    ),
    (
      coalesce(t.dropped, 0) + (
        select coalesce(sum(s.dropped), 0)
        from fairqueue.fq_channel_state s
        where s.queue = p_queue
          and s.dropped > 0
      )
    )::bigint,
    l.since,
    q.paused_at,
    q.max_concurrency,
    (
      select (n.current_concurrency - coalesce(t.queue_freed, 0))::integer
      from fairqueue.fq_queue_state n
      where n.queue = p_queue
      order by n.queue desc, n.turn desc
      limit 1
    ),
    nullif(q.rate_interval, 0),
    case when q.rate_interval > 0 then q.rate_burst end,
    (
      select fairqueue.fq_rate_allows_at(n.rate_at, n.rate_interval, n.rate_burst)
      from fairqueue.fq_queue_state n
      where n.queue = p_queue
      order by n.queue desc, n.turn desc
      limit 1
    ),
    coalesce(t.signals, 0),
    (
      select count(distinct e.consumer)
      from fairqueue.fq_lease e
      where e.queue = p_queue
        and e.expires_at > v_now
    ),
    c.cost,
    c.since
  from ready_order l
  cross join told t
  left join fairqueue.fq_queue q on q.name = p_queue
  left join fairqueue.fq_recent_costs(p_queue) c on num_nulls(c.channel_id) = 1;
end
$$;
