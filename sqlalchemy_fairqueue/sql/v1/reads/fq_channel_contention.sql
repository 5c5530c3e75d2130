-- fq_channel_contention: what fq_contention says of the channels that compete with some channels of a queue,
-- p_channels, and of what holds these back, at a cost that does not grow with the queue. The first rows, own, are those
-- of p_channels that exist, or one without a channel if none does; then come those with the most messages out, up to
-- p_limit.
-- Guarantees: one snapshot; times in microseconds since the epoch. At most p_count messages out are counted, those
-- whose leases expire first. Rivals are at most p_scan channels with messages out, those with the most, and at most
-- p_scan ready ones, those served next; of signals that nobody has heard the first p_scan count. Up to those numbers
-- messages_out, leased, current_concurrency, queue_concurrency and rival_weight are as fq_contention has them, but for
-- channels whose head was cancelled or is locked by others. backlog and oldest_ready_at, of own rows: as in
-- fq_channel_stats, up to p_scan prioritised messages.
-- consumers: whether a consumer of the queue has a lease that has not expired. served_cost, queue_cost: as in
-- fq_contention.
-- Cost: p_count messages out, p_scan index entries of each other kind, three probes a row of the answer, two more a row
-- of p_channels with up to p_scan of its prioritised messages, one each for up to twice p_scan channels with messages
-- out or signals, and at most 2,000 rows of the history in queues that do not share by messages. Locks: none.
-- Index: fq_channel_queue_name_key, fq_channel_pkey, fq_channel_state_newest_ix, fq_channel_state_ready_ix,
-- fq_lease_expires_ix, fq_message_lease_ix, fq_message_ready_ix, fq_signal_pkey, fq_queue_pkey,
-- fq_queue_state_newest_ix; those of fq_recent_costs. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_channel_contention(
  p_queue text, p_channels text[], p_limit integer, p_scan integer, p_count integer
)
returns table (
  channel text,
  own boolean,
  backlog bigint,
  leased bigint,
  weight integer,
  paused_at bigint,
  current_concurrency integer,
  max_concurrency integer,
  rate_interval bigint,
  rate_burst integer,
  rate_allows_at bigint,
  oldest_ready_at bigint,
  last_dequeue_at bigint,
  served_cost bigint,
  queue_paused_at bigint,
  queue_concurrency integer,
  queue_max_concurrency integer,
  queue_rate_allows_at bigint,
  consumers boolean,
  messages_out bigint,
  rival_weight bigint,
  queue_cost bigint
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
declare
  v_now bigint := fairqueue.fq_now();
  v_queue fairqueue.fq_queue;
  v_queue_state fairqueue.fq_queue_state;
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  if least(p_limit, p_scan, p_count) < 1 or num_nulls(p_limit, p_scan, p_count) > 0 then
    raise exception 'fq_channel_contention has limit %, scan %, count %', p_limit, p_scan, p_count
      using errcode = 'QF001', hint = 'ask for 1 channel or more, and let 1 message out or more be counted';
  end if;
  select q.* into v_queue
  from fairqueue.fq_queue q
  where q.name = p_queue;
  select s.* into v_queue_state
  from fairqueue.fq_queue_state s
  where s.queue = p_queue
  order by s.queue desc, s.row_version desc
  limit 1;
  return query
  with held as materialized (
    select o.channel_id, o.messages
    from fairqueue.fq_messages_out(p_queue, p_count) o
  ),
  told as materialized (
    select f.channel_id, f.dequeue_at, f.added, f.freed, f.queue_freed
    from fairqueue.fq_signal f
    where f.queue = p_queue
    order by f.queue, f.id
    limit p_scan
  ),
  named as materialized (
    select c.channel_id, c.since
    from fairqueue.fq_named_channels(p_queue, p_channels, v_now, p_scan) c
  ),
  costs as materialized (
    select r.channel_id, r.cost
    from fairqueue.fq_recent_costs((case when v_queue.fair_by <> 'messages' then p_queue end)::text) r
  ),
  -- What is known of each channel. Of a ready channel the weight is read with the ready order, of others by a probe
  -- each. One that is only named, or has only ended lately, is no rival.
  known as materialized (
    select k.channel_id, max(k.weight) as weight, max(k.messages) as messages, bool_or(k.due) as due,
      sum(k.freed) as freed, sum(k.added) as added, bool_or(k.named) as named, max(k.since) as since,
      max(k.cost) as cost
    from (
      (
        select s.channel_id, s.weight, null::bigint as messages, true as due, 0 as freed, 0 as added, false as named,
          null::bigint as since, null::bigint as cost
        from fairqueue.fq_channel_state s
        where s.queue = p_queue
          and s.next_dequeue_at is not null
          and (s.max_concurrency is null or s.current_concurrency < s.max_concurrency)
          and s.next_dequeue_at <= v_now
        order by s.queue, s.next_dequeue_at
        limit p_scan
      )
      union all
      (
        select h.channel_id, null, h.messages, true, 0, 0, false, null, null
        from held h
        order by h.messages desc, h.channel_id
        limit p_scan
      )
      union all
      select h.channel_id, null, h.messages, true, 0, 0, false, null, null
      from held h
      -- Hashed: as a bare "in" it would be a join, which compares all with all here.
      where (h.channel_id in (select n.channel_id from named n)) is true
      union all
      select t.channel_id, null, null, (t.dequeue_at <= v_now) is true, t.freed, t.added, false, null, null
      from told t
      union all
      select n.channel_id, null, null, n.since is not null, 0, 0, true, n.since, null
      from named n
      union all
      select r.channel_id, null, null, false, 0, 0, false, null, r.cost
      from costs r
      where r.channel_id is not null
    ) k
    group by k.channel_id
  ),
  whole as materialized (
    select sum(
      coalesce(
        r.weight,
        (
          select w.weight
          from fairqueue.fq_rival_weight(
            r.channel_id, r.messages, r.due::boolean, r.freed::bigint, v_now
          ) w
        )
      )
    ) filter (where r.due or r.freed > 0) as rival_weight,
    (select sum(h.messages)::bigint from held h) as messages_out,
    exists (
      select
      from fairqueue.fq_lease e
      where e.queue = p_queue
        and e.expires_at > v_now
    ) as consumers,
    (select sum(t.queue_freed)::integer from told t) as queue_freed,
    (select sum(r.cost)::bigint from costs r where num_nulls(r.channel_id) = 1) as cost
    from known r
  ),
  listed as materialized (
    (
      select true as own, k.channel_id, k.messages, k.freed, k.added, k.since, k.cost
      from known k
      where k.named
    )
    union all
    select true, null, null, null, null, null, null
    where not exists (select from named n)
    union all
    (
      select false, k.channel_id, k.messages, null, null, null, null
      from known k
      where k.messages > 0
      order by k.messages desc, k.channel_id
      limit p_limit
    )
  )
  select c.name, l.own, case when l.own then greatest(0, s.backlog + l.added) end, coalesce(l.messages, 0), s.weight,
    case when l.own then s.paused_at end,
    case when l.own then (s.current_concurrency - l.freed)::integer end,
    case when l.own then s.max_concurrency end, case when l.own then s.rate_interval end,
    case when l.own then s.rate_burst end,
    case when l.own then fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst) end,
    l.since,
    case when l.own then nullif(s.last_dequeue_at, 0) end,
    case when l.own and w.cost is not null then coalesce(l.cost, 0)::bigint end,
    v_queue.paused_at, v_queue_state.current_concurrency - coalesce(w.queue_freed, 0), v_queue.max_concurrency,
    fairqueue.fq_rate_allows_at(v_queue_state.rate_at, v_queue_state.rate_interval, v_queue_state.rate_burst),
    w.consumers, coalesce(w.messages_out, 0), coalesce(w.rival_weight, 0), w.cost
  from listed l
  cross join whole w
  left join fairqueue.fq_channel c on c.id = l.channel_id
  left join lateral (
    select n.*
    from fairqueue.fq_channel_state n
    where n.channel_id = l.channel_id
    order by n.channel_id desc, n.row_version desc
    limit 1
  ) s on true
  order by l.own desc, l.messages desc, c.name;
end
$$;
