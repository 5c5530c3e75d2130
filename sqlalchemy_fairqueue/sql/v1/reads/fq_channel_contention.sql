-- fq_channel_contention: what fq_contention says of the channels that compete with some channels of a queue,
-- p_channels, and of what holds these back, at a cost that does not grow with the queue. The first rows, own, are those
-- of p_channels that exist, or one without a channel if none does; then come those with the most messages out, up to
-- p_limit.
-- Guarantees: one snapshot; times in microseconds since the epoch. At most p_count messages out are counted, those
-- whose leases expire first. Rivals are at most p_scan channels with messages out, those with the most, and at most
-- p_scan ready ones, those served next; of signals that nobody has heard the first p_scan count. Up to those numbers
-- messages_out, leased, current_concurrency, queue_concurrency and rival_weight are as fq_contention has them, but for
-- channels whose head was cancelled or is locked by others. Of own rows backlog and oldest_ready_at are as in
-- fq_channel_stats, up to p_scan prioritised messages; of others they are not complete.
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
  channel text, own boolean, backlog bigint, leased bigint, weight integer, paused_at bigint,
  current_concurrency integer, max_concurrency integer, rate_interval bigint, rate_burst integer, rate_allows_at bigint,
  oldest_ready_at bigint, last_dequeue_at bigint, served_cost bigint, queue_paused_at bigint, queue_concurrency integer,
  queue_max_concurrency integer, queue_rate_allows_at bigint, consumers boolean, messages_out bigint,
  rival_weight bigint, queue_cost bigint
)
language plpgsql
stable
security definer
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
  with known as materialized (
    select r.channel_id, r.weight, r.messages, r.due, r.added, r.freed, r.queue_freed, r.named, r.since, r.cost
    from fairqueue.fq_rivals(
      p_queue, p_channels, (case when v_queue.fair_by <> 'messages' then p_queue end)::text, v_now, p_scan, p_count
    ) r
  ),
  -- A channel competes that has messages out, or something ready and is neither paused nor held back.
  whole as materialized (
    select
      sum(
        coalesce(
          k.weight,
          (
            select case
              when k.messages > 0
                or s.paused_at is null
                and (s.current_concurrency - k.freed < s.max_concurrency) is not false
                and (k.due or s.head_dequeue_at <= v_now)
                and (fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst) <= v_now) is not false
              then s.weight
            end
            from fairqueue.fq_channel_state s
            where s.channel_id = k.channel_id
            order by s.channel_id desc, s.row_version desc
            limit 1
          )
        )
      ) filter (where k.due or k.freed > 0) as rival_weight,
      sum(k.messages)::bigint as messages_out, sum(k.queue_freed)::integer as queue_freed,
      max(k.cost) filter (where num_nulls(k.channel_id) = 1) as cost
    from known k
  ),
  listed as materialized (
    select true as own, k.channel_id, k.messages, k.added, k.freed, k.since, k.cost
    from known k
    where k.named
    union all
    select true, null, null, null, null, null, null
    where not exists (select from known k where k.named)
    union all
    (
      select false, k.channel_id, k.messages, k.added, k.freed, k.since, k.cost
      from known k
      where k.messages > 0
      order by k.messages desc, k.channel_id
      limit p_limit
    )
  )
  select c.name, l.own, greatest(0, s.backlog + l.added), coalesce(l.messages, 0), s.weight, s.paused_at,
    (s.current_concurrency - l.freed)::integer, s.max_concurrency, s.rate_interval, s.rate_burst,
    fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst), l.since, nullif(s.last_dequeue_at, 0),
    case when w.cost is not null then coalesce(l.cost, 0) end, v_queue.paused_at,
    v_queue_state.current_concurrency - coalesce(w.queue_freed, 0), v_queue.max_concurrency,
    fairqueue.fq_rate_allows_at(v_queue_state.rate_at, v_queue_state.rate_interval, v_queue_state.rate_burst),
    exists (select from fairqueue.fq_lease e where e.queue = p_queue and e.expires_at > v_now),
    coalesce(w.messages_out, 0), coalesce(w.rival_weight, 0), w.cost
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
