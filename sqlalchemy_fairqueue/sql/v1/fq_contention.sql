-- fq_contention: the channels of a queue that wait longest, those with the most messages out, and those that have
-- scheduled messages alone, up to p_limit of each, one row a channel, the longest wait first.
-- Guarantees: one snapshot; counts and times as in fq_channel_stats. rate_allows_at: when the channel's rate allows a
-- delivery, null without a rate. Each row ends with figures of the whole queue: waiting, the channels with ready
-- messages; rivals and rival_weight, the channels that compete and their weights together: those with messages out, and
-- those with ready messages that are not paused, at their own limit or held back by their rate; messages_out; waits,
-- the median, the 90th and 99th percentile and the longest of the channels' waits, in microseconds. No rows: the queue
-- has no messages.
-- Cost: four index probes a channel with messages, the scheduled and prioritised messages, and what the queue has of
-- messages out and signals not heard. Neither the ready messages nor idle channels are read.
-- Locks: none. Index: those of fq_busy_channels, fq_channel_pkey, fq_channel_state_newest_ix, fq_message_ready_ix,
-- fq_message_lease_ix. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_contention(p_queue text, p_limit integer default 100)
returns table (
  channel text,
  ready bigint,
  scheduled bigint,
  leased bigint,
  current_concurrency integer,
  max_concurrency integer,
  rate_interval bigint,
  rate_burst integer,
  weight integer,
  paused_at bigint,
  oldest_ready_at bigint,
  last_dequeue_at bigint,
  rate_allows_at bigint,
  waiting bigint,
  rivals bigint,
  rival_weight bigint,
  messages_out bigint,
  waits bigint[]
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
  if p_limit is null or p_limit < 1 then
    raise exception 'fq_contention has limit %', p_limit
      using errcode = 'QF001', hint = 'ask for 1 channel or more';
  end if;
  return query
  with told as materialized (
    select g.channel_id, sum(g.added) as added, sum(g.freed) as freed
    from fairqueue.fq_signal g
    where g.queue = p_queue
    group by g.channel_id
  ),
  held as materialized (
    select m.channel_id, count(*) as messages
    from fairqueue.fq_lease e
    join fairqueue.fq_message m on m.lease_id = e.id
    where e.queue = p_queue
    group by m.channel_id
  ),
  busy as materialized (
    select c.id, c.name, s.max_concurrency, s.rate_interval, s.rate_burst, s.weight, s.paused_at,
      nullif(s.last_dequeue_at, 0) as served_at, coalesce(h.messages, 0) as leased, later.messages as scheduled,
      greatest(0, s.backlog + coalesce(t.added, 0) - later.messages) as ready,
      (s.current_concurrency - coalesce(t.freed, 0))::integer as used,
      least(ordinary.since, urgent.since) as since,
      fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst) as allowed_at
    from fairqueue.fq_busy_channels(p_queue) b(id)
    join fairqueue.fq_channel c on c.id = b.id
    cross join lateral (
      select v.*
      from fairqueue.fq_channel_state v
      where v.channel_id = c.id
      order by v.channel_id desc, v.turn desc
      limit 1
    ) s
    left join told t on t.channel_id = c.id
    left join held h on h.channel_id = c.id
    cross join lateral (
      select count(*) as messages
      from fairqueue.fq_message m
      where m.channel_id = c.id
        and m.lease_id is null
        and m.dequeue_at > v_now
    ) later
    left join lateral (
      select m.dequeue_at as since
      from fairqueue.fq_message m
      where m.channel_id = c.id
        and m.lease_id is null
        and m.dequeue_at between 0 and v_now
      order by m.channel_id, m.dequeue_at
      limit 1
    ) ordinary on true
    cross join lateral (
      select min(m.enqueued_at) as since
      from fairqueue.fq_message m
      where m.channel_id = c.id
        and m.lease_id is null
        and m.dequeue_at < 0
    ) urgent
  ),
  whole as materialized (
    select count(*) filter (where b.since is not null) as waiting, count(*) filter (where r.competes) as rivals,
      sum(b.weight) filter (where r.competes) as rival_weight, sum(b.leased) as messages_out,
      array[
        v_now - percentile_disc(0.5) within group (order by b.since),
        v_now - percentile_disc(0.1) within group (order by b.since),
        v_now - percentile_disc(0.01) within group (order by b.since),
        v_now - min(b.since)
      ] as waits
    from busy b
    cross join lateral (
      select b.leased > 0
        or (
          b.since is not null
          and b.paused_at is null
          and (b.max_concurrency is null or b.used < b.max_concurrency)
          and (b.allowed_at <= v_now) is not false
        ) as competes
    ) r
  ),
  shown as materialized (
    (
      select b.*
      from busy b
      where b.since is not null
      order by b.since, b.name
      limit p_limit
    )
    union
    (
      select b.*
      from busy b
      where b.leased > 0
      order by b.leased desc, b.name
      limit p_limit
    )
    union
    (
      select b.*
      from busy b
      where b.scheduled > 0
        and b.since is null
      order by b.scheduled desc, b.name
      limit p_limit
    )
  )
  select s.name, s.ready, s.scheduled, s.leased, s.used, s.max_concurrency, s.rate_interval, s.rate_burst, s.weight,
    s.paused_at, s.since, s.served_at, s.allowed_at, w.waiting, w.rivals, coalesce(w.rival_weight, 0),
    w.messages_out::bigint, w.waits
  from shown s
  cross join whole w
  order by s.since, s.name;
end
$$;
