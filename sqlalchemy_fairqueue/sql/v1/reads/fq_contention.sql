-- fq_contention: the channels of a queue that wait longest, those with the most messages out, and those that have
-- scheduled messages alone, up to p_limit of each, one row a channel, the longest wait first.
-- Guarantees: one snapshot; counts and times as in fq_channel_stats. rate_allows_at: when the channel's rate allows a
-- delivery, null without a rate. Each row ends with figures of the whole queue: waiting, the channels with ready
-- messages; rivals and rival_weight, the channels that compete and their weights together: those with messages out, and
-- those with ready messages that are not paused, at their own limit or held back by their rate; messages_out; waits,
-- the median, the 90th and 99th percentile and the longest of the channels' waits, in microseconds; queue_cost, of
-- queues that are fair by cost or seconds and record their history, what lately ended cost (fq_recent_costs), of which
-- served_cost is the channel's. No rows: the queue has no messages.
-- What the dispatcher knows decides for channels that nothing has happened to since it looked: no signal that is not
-- heard, no message out, no aging priorities. The wait of such a channel is that of its head, which may be gone since
-- (cancelled, or locked by others for long): such a channel may be counted as waiting. The rows are exact: they are
-- chosen by the heads of twice as many channels, and then their messages are looked at.
-- Cost: one state row a channel with messages; four index probes a row of the answer and a channel that something has
-- happened to, with its scheduled and prioritised messages; and what the queue has of messages out and signals not
-- heard. Neither the ready messages nor idle channels are read.
-- Locks: none. Index: fq_channel_state_ready_ix, fq_channel_state_held_back_ix, fq_channel_state_newest_ix,
-- fq_channel_pkey, fq_signal_pkey, fq_lease_expires_ix, fq_message_ready_ix, fq_message_lease_ix, fq_queue_pkey; those
-- of fq_recent_costs.
-- Errors: QF001 bad limit; QF007.
create function fairqueue.fq_contention(p_queue text, p_limit integer default 100)
returns table (
  channel text, ready bigint, scheduled bigint, leased bigint, current_concurrency integer, max_concurrency integer,
  rate_interval bigint, rate_burst integer, weight integer, paused_at bigint, oldest_ready_at bigint,
  last_dequeue_at bigint, rate_allows_at bigint, waiting bigint, rivals bigint, rival_weight bigint,
  messages_out bigint, waits bigint[], served_cost bigint, queue_cost bigint
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
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  if p_limit is null or p_limit < 1 then
    raise exception 'fq_contention has limit %', p_limit
      using errcode = 'QF001', hint = 'ask for 1 channel or more';
  end if;
  return query
  with busy as materialized (
    select k.channel_id, k.max_concurrency, k.rate_interval, k.rate_burst, k.weight, k.paused_at,
      nullif(k.last_dequeue_at, 0) as served_at, k.backlog + k.added as backlog, k.leased,
      (k.current_concurrency - k.freed)::integer as used,
      fairqueue.fq_rate_allows_at(k.rate_at, k.rate_interval, k.rate_burst) as allowed_at, k.head_dequeue_at as head,
      k.changed
    from fairqueue.fq_busy_states(p_queue) k
  ),
  picked as materialized (
    select b.*
    from busy b
    where b.changed
    union all
    (
      select b.*
      from busy b
      where not b.changed
        and b.head <= v_now
      order by b.head
      limit 2 * p_limit::bigint
    )
    union all
    (
      select b.*
      from busy b
      where not b.changed
        and b.head > v_now
      order by b.head
      limit p_limit
    )
  ),
  looked as materialized (
    select p.*, l.messages as scheduled, greatest(0, p.backlog - l.messages) as ready, w.since
    from picked p
    cross join lateral (
      select count(*) as messages
      from fairqueue.fq_message m
      where m.channel_id = p.channel_id
        and m.lease_id is null
        and m.dequeue_at > v_now
    ) l
    cross join lateral fairqueue.fq_waits_since(p.channel_id, v_now, null::bigint) w
  ),
  whole as materialized (
    select count(*) filter (where b.since is not null) as waiting, count(*) filter (where b.competes) as rivals,
      sum(b.weight) filter (where b.competes) as rival_weight, sum(b.leased) as messages_out,
      percentile_disc(array[0.5, 0.1, 0.01, 0]) within group (order by v_now - b.since desc) as waits
    from (
      select w.since, n.weight, n.leased,
        n.leased > 0
        or (
          w.since is not null
          and n.paused_at is null
          and (n.max_concurrency is null or n.used < n.max_concurrency)
          and (n.allowed_at <= v_now) is not false
        ) as competes
      from busy n
      left join looked l on l.channel_id = n.channel_id
      cross join lateral (select case when n.changed then l.since when n.head <= v_now then n.head end as since) w
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
    (select l.* from looked l where l.scheduled > 0 and l.since is null order by l.head, l.channel_id limit p_limit)
  )
  select c.name, s.ready, s.scheduled, s.leased, s.used, s.max_concurrency, s.rate_interval, s.rate_burst, s.weight,
    s.paused_at, s.since, s.served_at, s.allowed_at, w.waiting, w.rivals, coalesce(w.rival_weight, 0),
    w.messages_out::bigint, coalesce(w.waits, '{}'), case when a.cost is not null then coalesce(u.cost, 0) end, a.cost
  from shown s
  join fairqueue.fq_channel c on c.id = s.channel_id
  cross join whole w
  left join costs u on u.channel_id = s.channel_id
  left join costs a on num_nulls(a.channel_id) = 1
  order by s.since, c.name;
end
$$;
