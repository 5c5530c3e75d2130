-- fq_contention_of: what fq_contention says of the channels that compete with one channel of a queue, p_channel, and of
-- what holds it back, at a cost that does not grow with the queue. The first row is that of the channel, own (p_channel
-- null or unknown: its columns are null); then come those with the most messages out, up to p_limit.
-- Guarantees: one snapshot; times in microseconds since the epoch. At most p_scan messages out are counted, of the
-- p_scan leases that expire first; at most p_scan of the ready channels are rivals, those served next, and of signals
-- that nobody has heard the first p_scan count. Up to those numbers messages_out, leased and rival_weight are as
-- fq_contention has them, but for channels whose head was cancelled or is locked by others. Slots that
-- unheard signals free are taken off current_concurrency of the channel and queue_concurrency only where the limit is
-- reached with them. The channel itself counts as ready: it is a rival unless its own limit, rate or pause holds it
-- back. consumers: whether a consumer of the queue has a lease that has not expired. served_cost, queue_cost: as in
-- fq_contention.
-- Cost: p_scan index entries of each kind, three probes a row of the answer, one each for channels with messages out
-- or signals, and at most 2,000 rows of the history in queues that do not share by messages. Locks: none.
-- Index: fq_channel_queue_name_key, fq_channel_pkey, fq_channel_state_newest_ix, fq_channel_state_ready_ix,
-- fq_lease_expires_ix, fq_message_lease_ix, fq_signal_pkey, fq_queue_pkey, fq_queue_state_newest_ix; those of
-- fq_recent_costs. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_contention_of(p_queue text, p_channel text, p_limit integer, p_scan integer)
returns table (
  channel text,
  own boolean,
  leased bigint,
  weight integer,
  paused_at bigint,
  current_concurrency integer,
  max_concurrency integer,
  rate_allows_at bigint,
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
  v_channel_id bigint;
  v_state fairqueue.fq_channel_state;
  v_queue fairqueue.fq_queue;
  v_queue_state fairqueue.fq_queue_state;
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  if p_limit is null or p_limit < 1 or p_scan is null or p_scan < 1 then
    raise exception 'fq_contention_of has limit %, scan %', p_limit, p_scan
      using errcode = 'QF001', hint = 'ask for 1 channel or more, and let 1 message out or more be counted';
  end if;
  select c.id into v_channel_id
  from fairqueue.fq_channel c
  where c.queue = p_queue
    and c.name = p_channel;
  select s.* into v_state
  from fairqueue.fq_channel_state s
  where s.channel_id = v_channel_id
  order by s.channel_id desc, s.row_version desc
  limit 1;
  select q.* into v_queue
  from fairqueue.fq_queue q
  where q.name = p_queue;
  select s.* into v_queue_state
  from fairqueue.fq_queue_state s
  where s.queue = p_queue
  order by s.queue desc, s.row_version desc
  limit 1;
  if v_state.current_concurrency >= v_state.max_concurrency
    or v_queue_state.current_concurrency >= v_queue.max_concurrency
  then
    select v_state.current_concurrency - coalesce(sum(g.freed) filter (where g.channel_id = v_channel_id), 0),
      v_queue_state.current_concurrency - coalesce(sum(g.queue_freed), 0)
    into v_state.current_concurrency, v_queue_state.current_concurrency
    from (
      select f.channel_id, f.freed, f.queue_freed
      from fairqueue.fq_signal f
      where f.queue = p_queue
      order by f.queue, f.id
      limit p_scan
    ) g;
  end if;
  return query
  with held as materialized (
    select o.channel_id, count(*) as messages
    from (
      select m.channel_id
      from (
        select e.id
        from fairqueue.fq_lease e
        where e.queue = p_queue
        order by e.queue, e.expires_at
        limit p_scan
      ) l
      join fairqueue.fq_message m on m.lease_id = l.id
      limit p_scan
    ) o
    group by o.channel_id
  ),
  -- Of a ready channel the weight is read with the ready order, of others by a probe each.
  rivals as materialized (
    select k.channel_id, max(k.weight) as weight, bool_or(k.holds) as holds, bool_or(k.due) as due,
      sum(k.freed) as freed
    from (
      (
        select s.channel_id, s.weight, false as holds, true as due, 0 as freed
        from fairqueue.fq_channel_state s
        where s.queue = p_queue
          and s.next_dequeue_at is not null
          and (s.max_concurrency is null or s.current_concurrency < s.max_concurrency)
          and s.next_dequeue_at <= v_now
        order by s.queue, s.next_dequeue_at
        limit p_scan
      )
      union all
      select h.channel_id, null, true, true, 0
      from held h
      union all
      select g.channel_id, null, false, g.dequeue_at <= v_now, g.freed
      from (
        select f.channel_id, f.dequeue_at, f.freed
        from fairqueue.fq_signal f
        where f.queue = p_queue
        order by f.queue, f.id
        limit p_scan
      ) g
      where g.dequeue_at <= v_now
        or g.freed > 0
      union all
      select v_channel_id, null, false, true, 0
      where v_channel_id is not null
    ) k
    group by k.channel_id
  ),
  whole as materialized (
    select sum(
      coalesce(
        r.weight,
        (
          select case
            when r.holds then s.weight
            when s.paused_at is null
              and (s.max_concurrency is null or s.current_concurrency - r.freed < s.max_concurrency)
              and (r.due or s.head_dequeue_at <= v_now)
              and (fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst) <= v_now) is not false
            then s.weight
          end
          from fairqueue.fq_channel_state s
          where s.channel_id = r.channel_id
          order by s.channel_id desc, s.row_version desc
          limit 1
        )
      )
    ) as rival_weight,
    (select sum(h.messages)::bigint from held h) as messages_out,
    exists (
      select
      from fairqueue.fq_lease e
      where e.queue = p_queue
        and e.expires_at > v_now
    ) as consumers
    from rivals r
  ),
  costs as materialized (
    select sum(r.cost) filter (where r.channel_id = v_channel_id)::bigint as own,
      sum(r.cost) filter (where num_nulls(r.channel_id) = 1)::bigint as queue
    from fairqueue.fq_recent_costs((case when v_queue.fair_by <> 'messages' then p_queue end)::text) r
  ),
  listed as materialized (
    select 0 as step, v_channel_id as channel_id, (
      select h.messages
      from held h
      where h.channel_id = v_channel_id
    ) as messages
    union all
    (
      select 1, h.channel_id, h.messages
      from held h
      order by h.messages desc, h.channel_id
      limit p_limit
    )
  )
  select c.name, l.step = 0, coalesce(l.messages, 0), s.weight,
    case when l.step = 0 then v_state.paused_at end,
    case when l.step = 0 then v_state.current_concurrency end,
    case when l.step = 0 then v_state.max_concurrency end,
    case
      when l.step = 0 then
        fairqueue.fq_rate_allows_at(v_state.rate_at, v_state.rate_interval, v_state.rate_burst)
    end,
    case when l.step = 0 and k.queue is not null then coalesce(k.own, 0) end,
    v_queue.paused_at, v_queue_state.current_concurrency, v_queue.max_concurrency,
    fairqueue.fq_rate_allows_at(v_queue_state.rate_at, v_queue_state.rate_interval, v_queue_state.rate_burst),
    w.consumers, coalesce(w.messages_out, 0), coalesce(w.rival_weight, 0), k.queue
  from listed l
  cross join whole w
  cross join costs k
  left join fairqueue.fq_channel c on c.id = l.channel_id
  left join lateral (
    select n.weight
    from fairqueue.fq_channel_state n
    where n.channel_id = l.channel_id
    order by n.channel_id desc, n.row_version desc
    limit 1
  ) s on true
  order by l.step, l.messages desc, c.name;
end
$$;
