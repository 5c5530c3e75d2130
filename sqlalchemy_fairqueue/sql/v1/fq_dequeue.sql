-- fq_dequeue: lease up to p_limit ready messages of a queue, taking channels in turn.
-- Guarantees: never more than the limit, a channel's max_concurrency or its rate; within a channel by (dequeue_at, id); the rows come in turn order.
-- One row a message, then one row about the call (message_id null): the lease, scan hints to pass to the next call, microseconds until
-- something may be due (null: nothing is scheduled), and the last signal seen when more are waiting (hear them with fq_hear first).
-- The lease p_lease_id is used again if it is good for p_lease microseconds more; else a new one is made, good for a little longer than that.
-- Locks: own lease for key share, state rows and messages for no key update, all skip locked: it waits for none. READ COMMITTED only.
-- Index: fq_channel_state_ready_ix, fq_message_ready_ix; rows by ctid. Errors: QF001 bad argument, QF003 wrong isolation level.
-- Source: round robin over channels with a head pointer; deficit round robin (Shreedhar, Varghese 1995); generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_dequeue(
  p_queue text,
  p_limit integer,
  p_lease bigint,
  p_consumer text,
  p_lease_id bigint default null,
  p_hints bigint[] default null
)
returns table (
  message_id bigint,
  row_id tid,
  channel_id bigint,
  channel text,
  kind text,
  content bytea,
  headers jsonb,
  enqueued_at bigint,
  attempt integer,
  max_attempts integer,
  deliveries integer,
  lease_id bigint,
  lease_expires_at bigint,
  hints bigint[],
  due_in bigint,
  signals_after bigint
)
language plpgsql
volatile
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
  c_chunk constant integer := 1000;
  c_nothing constant bigint := -9223372036854775808;
  v_now bigint := fairqueue.fq_now();
  v_lease_id bigint := p_lease_id;
  v_expires_at bigint;
  v_new_lease boolean;
  -- hints: least place in line found, signals below are gone, signals below may be gone, once writers below this xid ended, next full scan
  v_channel_floor bigint := coalesce(p_hints[1], c_nothing);
  v_signal_floor bigint := coalesce(p_hints[2], 0);
  v_signal_mark bigint := p_hints[3];
  v_mark_xid bigint := p_hints[4];
  v_full_at bigint := coalesce(p_hints[5], 0);
  v_full boolean := v_now >= v_full_at or v_full_at > v_now + 60000000;
  v_scan_cost bigint;
  v_ended_xid bigint;
  v_signalled boolean;
  v_heard integer := 0;
  v_seen integer := 0;
  v_first_signal bigint;
  v_last_signal bigint;
  v_scheduled_at bigint;
  -- the channels of one pass, in the order of the line
  v_states tid[];
  v_channels bigint[];
  v_weights integer[];
  v_turns_left integer[];
  v_limited boolean[];
  v_most integer[];
  v_quotas integer[];
  v_places bigint[];
  v_heads_at bigint[];
  v_head_ids bigint[];
  v_gots integer[];
  v_found integer;
  v_first bigint;
  v_weight bigint;
  v_turns bigint;
  v_room bigint;
  -- the messages of one pass: where, whose, the how many-th of its channel
  v_rows tid[];
  v_ords bigint[];
  v_ranks integer[];
  v_ids bigint[];
  v_locked tid[];
  v_whole boolean;
  v_next_heads_at bigint[];
  v_next_head_ids bigint[];
  v_width integer := p_limit;
  v_left integer := p_limit;
  v_got integer;
  v_place bigint := v_now;
  v_empty integer := 0;
  -- the channel of the only message
  v_state tid;
  v_channel_id bigint;
  v_has_limit boolean;
  v_turn_left integer;
  v_head_at bigint;
  v_head_id bigint;
  v_read_at bigint;
begin
  if p_queue is null or p_limit is null or p_limit not between 1 and 100000 or p_lease is null or p_lease not between 1 and 31536000000000 or p_consumer is null then
    raise exception 'fq_dequeue has queue %, limit %, lease % microseconds, consumer %', p_queue, p_limit, p_lease, p_consumer
      using errcode = 'QF001', hint = 'ask for 1 to 100000 messages under a lease of 1 microsecond to 365 days, with the name of a consumer';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_dequeue runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run it in a READ COMMITTED transaction of its own';
  end if;

  -- Under an own lease that another consumer is reclaiming nothing may be taken: that lock makes it look gone.
  select e.expires_at into v_expires_at
  from fairqueue.fq_lease e
  where e.id = p_lease_id
    and e.queue = p_queue
    and e.expires_at >= v_now + p_lease
  for key share skip locked;
  v_new_lease := not found;
  if v_new_lease then
    v_lease_id := hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807;
    v_expires_at := v_now + p_lease + p_lease / 8;
  end if;

  perform
  from fairqueue.fq_lease e
  where e.queue = p_queue
    and e.expires_at <= v_now
  limit 1;
  if found then
    perform fairqueue.fq_reclaim(p_queue, c_chunk);
  end if;

  if v_full then
    v_channel_floor := c_nothing;
    v_scan_cost := -fairqueue.fq_now();
  end if;
  select
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    exists (
      select
      from fairqueue.fq_signal g
      where g.queue = p_queue
        and g.id > case when v_full then 0 else v_signal_floor end
    )
  into v_ended_xid, v_signalled;
  if v_signalled then
    select h.heard, h.seen, h.first_id, h.last_id, h.scheduled_at
    into v_heard, v_seen, v_first_signal, v_last_signal, v_scheduled_at
    from fairqueue.fq_hear(p_queue, case when v_full then 0 else v_signal_floor end, c_chunk) h;
    signals_after := case when v_seen = c_chunk then v_last_signal end;
    v_channel_floor := least(v_channel_floor, v_scheduled_at);
  end if;
  if v_mark_xid <= v_ended_xid then
    -- Whoever drew an id below the mark has ended, and this scan saw what they left: below both nothing can come up any more.
    v_signal_floor := greatest(v_signal_floor, least(v_signal_mark, v_first_signal - 1));
    v_mark_xid := null;
  end if;
  if v_seen > 0 and v_mark_xid is null then
    v_signal_mark := v_last_signal;
    v_mark_xid := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  end if;
  if v_full then
    v_scan_cost := v_scan_cost + fairqueue.fq_now();
  end if;

  -- One message is taken by statements of its own: starting those for many costs more than their run. Where these find nothing, those decide.
  if p_limit = 1 then
    if v_full then
      v_scan_cost := v_scan_cost - fairqueue.fq_now();
    end if;
    select s.ctid, s.channel_id, s.next_dequeue_at, s.head_dequeue_at, s.head_message_id, s.max_concurrency is not null,
      case when s.credit > 0 then s.credit else s.weight end, ready.read_at
    into v_state, v_channel_id, v_first, v_head_at, v_head_id, v_has_limit, v_turn_left, v_read_at
    from (
      select r.ctid as row, r.turn, r.next_dequeue_at, r.channel_id, fairqueue.fq_now() as read_at
      from fairqueue.fq_channel_state r
      where r.queue = p_queue
        and r.next_dequeue_at is not null
        and (r.max_concurrency is null or r.current_concurrency < r.max_concurrency)
        and r.next_dequeue_at >= v_channel_floor
        and r.next_dequeue_at <= v_now
        and r.head_dequeue_at <= v_now
        and (r.release_interval = 0 or r.release_at - (r.release_burst - 1) * r.release_interval <= v_now)
      order by r.queue, r.next_dequeue_at, r.channel_id
    ) ready
    join fairqueue.fq_channel_state s
      on s.ctid = ready.row
      and s.turn is not distinct from ready.turn
      and s.channel_id is not distinct from ready.channel_id
    order by ready.next_dequeue_at, ready.channel_id
    limit 1
    for no key update of s skip locked;
    if v_full then
      v_scan_cost := v_scan_cost + fairqueue.fq_now();
      v_full_at := v_now + least(30 * v_scan_cost, 30000000);
      v_full := false;
    end if;
    if found then
      v_channel_floor := v_first;
      return query
      update fairqueue.fq_message m
      set lease_id = v_lease_id,
        attempts = m.attempts + 1,
        deliveries = m.deliveries + 1,
        slots = case when v_has_limit then 1 else 0 end
      where m.ctid = (
          select x.ctid
          from fairqueue.fq_message x
          where x.channel_id = v_channel_id
            and x.lease_id is null
            and (x.dequeue_at, x.id) >= (v_head_at, v_head_id)
            and x.dequeue_at <= v_now
          order by x.channel_id, x.dequeue_at, x.id
          limit 1
          for no key update skip locked
        )
        and num_nulls(m.lease_id) = 1
      returning m.id, m.ctid, m.channel_id,
        (
          select c.name
          from fairqueue.fq_channel c
          where c.id = v_channel_id
        ),
        m.kind, m.content, m.headers, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries,
        null::bigint, null::bigint, null::bigint[], null::bigint, null::bigint;
      if found then
        v_left := 0;
        -- The new head is the least message that was not taken, one that somebody else has locked included.
        select x.dequeue_at, x.id into v_head_at, v_head_id
        from fairqueue.fq_message x
        where x.channel_id = v_channel_id
          and x.lease_id is null
          and (x.dequeue_at, x.id) >= (v_head_at, v_head_id)
        order by x.channel_id, x.dequeue_at, x.id
        limit 1;
        v_place := greatest(v_now + 1, v_read_at);
        update fairqueue.fq_channel_state s
        set turn = s.turn + 1,
          current_concurrency = s.current_concurrency + case when s.max_concurrency is null then 0 else 1 end,
          release_at = greatest(s.release_at, v_now) + s.release_interval,
          head_dequeue_at = v_head_at,
          head_message_id = v_head_id,
          last_dequeue_at = v_place,
          credit = fairqueue.fq_credit_after(s.weight, v_turn_left, 1, v_head_at, v_now),
          next_dequeue_at = fairqueue.fq_place_after(
            s.next_dequeue_at, v_place, v_turn_left, 1, v_head_at, v_now, s.release_at, s.release_interval, s.release_burst
          )
        where s.ctid = v_state;
      end if;
    end if;
  end if;

  while v_left > 0 and v_empty < 32 loop
    if v_full then
      v_scan_cost := v_scan_cost - fairqueue.fq_now();
    end if;
    -- A row that changed since the snapshot fails the join on turn when it is looked at again: it has another place in line now.
    -- ("is not distinct from" is no index condition: rows are reached by their ctid, whatever the planner thinks of an index.)
    select
      array_agg(o.row), array_agg(o.channel_id), array_agg(o.weight), array_agg(o.turn_left), array_agg(o.limited), array_agg(o.most),
      array_agg(o.read_at), array_agg(o.head_dequeue_at), array_agg(o.head_message_id), count(*), min(o.next_dequeue_at), sum(o.weight)
    into v_states, v_channels, v_weights, v_turns_left, v_limited, v_most,
      v_places, v_heads_at, v_head_ids, v_found, v_first, v_weight
    from (
      select s.ctid as row, s.channel_id, s.weight, s.next_dequeue_at, s.head_dequeue_at, s.head_message_id, ready.read_at,
        case when s.credit > 0 then s.credit else s.weight end as turn_left,
        s.max_concurrency is not null as limited,
        least(
          v_left,
          s.max_concurrency - s.current_concurrency,
          case
            when s.release_interval > 0 then (v_now + (s.release_burst - 1) * s.release_interval - greatest(s.release_at, v_now)) / s.release_interval + 1
          end
        )::integer as most
      from (
        -- The clock is read before the row is locked: whoever finds a channel locked reads a later time for the one that it takes
        -- instead, so that places come in the order of the line whichever call started first.
        select r.ctid as row, r.turn, r.next_dequeue_at, r.channel_id, fairqueue.fq_now() as read_at
        from fairqueue.fq_channel_state r
        where r.queue = p_queue
          and r.next_dequeue_at is not null
          and (r.max_concurrency is null or r.current_concurrency < r.max_concurrency)
          and r.next_dequeue_at >= v_channel_floor
          and r.next_dequeue_at <= v_place
          -- what became due after the call began waits for the next one: it would stand first in line again and again
          and r.head_dequeue_at <= v_now
          and (r.release_interval = 0 or r.release_at - (r.release_burst - 1) * r.release_interval <= v_now)
        order by r.queue, r.next_dequeue_at, r.channel_id
      ) ready
      join fairqueue.fq_channel_state s
        on s.ctid = ready.row
        and s.turn is not distinct from ready.turn
        and s.channel_id is not distinct from ready.channel_id
      order by ready.next_dequeue_at, ready.channel_id
      limit v_width
      for no key update of s skip locked
    ) o;
    if v_full then
      v_scan_cost := v_scan_cost + fairqueue.fq_now();
      -- a thirtieth of the time at most, and twice a minute at least
      v_full_at := v_now + least(30 * v_scan_cost, 30000000);
      v_full := false;
    end if;
    if v_found = 0 then
      exit when v_channel_floor = c_nothing;
      v_channel_floor := c_nothing;
      continue;
    end if;
    v_channel_floor := v_first;

    -- As many whole turns as all of them fit in, the last of the line cut short; places strictly ascending, as close to the clock as that allows.
    v_turns := greatest(1, v_left / v_weight);
    v_room := v_left;
    v_quotas := v_most;
    for i in 1..v_found loop
      v_quotas[i] := least(v_most[i], v_turns_left[i] + (v_turns - 1) * v_weights[i], v_room);
      v_room := v_room - v_quotas[i];
      v_place := greatest(v_place + 1, v_places[i]);
      v_places[i] := v_place;
    end loop;

    -- A new statement, whose snapshot is younger than the locks: a message whose signal was heard before is seen.
    -- One look finds what each channel may give and, one further, its new head; the last row of its turn tells how many and which.
    select
      array_agg(w.row) filter (where w.taken), array_agg(w.id) filter (where w.taken), array_agg(w.ord) filter (where w.taken), array_agg(w.rank) filter (where w.taken),
      array_agg(case when w.taken then w.rank else 0 end) filter (where w.last),
      array_agg(case when w.taken then w.next_at else w.dequeue_at end) filter (where w.last),
      array_agg(case when w.taken then w.next_id else w.id end) filter (where w.last)
    into v_rows, v_ids, v_ords, v_ranks, v_gots, v_next_heads_at, v_next_head_ids
    from (
      select t.*,
        t.rank <= t.quota and t.dequeue_at <= v_now as taken,
        case
          when t.rank > t.quota then t.quota = 0
          when t.dequeue_at <= v_now then t.rank = t.quota or t.next_at is null or t.next_at > v_now
          else t.rank = 1
        end as last
      from (
        select f.row, f.id, f.dequeue_at, u.ord, u.quota,
          (row_number() over turn)::integer as rank,
          lead(f.dequeue_at) over turn as next_at,
          lead(f.id) over turn as next_id
        from unnest(v_channels, v_quotas, v_heads_at, v_head_ids) with ordinality u(channel_id, quota, head_at, head_id, ord)
        left join lateral (
          select x.ctid as row, x.dequeue_at, x.id
          from fairqueue.fq_message x
          where x.channel_id = u.channel_id
            and x.lease_id is null
            and (x.dequeue_at, x.id) >= (u.head_at, u.head_id)
          order by x.channel_id, x.dequeue_at, x.id
          limit u.quota + 1
        ) f on true
        window turn as (partition by u.ord order by f.dequeue_at, f.id)
      ) t
    ) w;
    select array_agg(l.row)
    into v_locked
    from (
      select x.ctid as row
      from unnest(v_rows, v_ids) u(row, id)
      join fairqueue.fq_message x
        on x.ctid = u.row
        and x.id is not distinct from u.id
        and num_nulls(x.lease_id) = 1
      for no key update of x skip locked
    ) l;
    v_whole := cardinality(v_locked) is not distinct from cardinality(v_rows);
    if v_whole then
      v_rows := v_locked;
    else
      -- A message that somebody else has locked is passed by, and the turn goes on behind it.
      select array_agg(f.row), array_agg(u.ord)
      into v_rows, v_ords
      from unnest(v_channels, v_quotas, v_heads_at, v_head_ids) with ordinality u(channel_id, quota, head_at, head_id, ord)
      cross join lateral (
        select x.ctid as row
        from fairqueue.fq_message x
        where x.channel_id = u.channel_id
          and x.lease_id is null
          and (x.dequeue_at, x.id) >= (u.head_at, u.head_id)
          and x.dequeue_at <= v_now
        order by x.channel_id, x.dequeue_at, x.id
        limit u.quota
        for no key update skip locked
      ) f;
      v_gots := array_fill(0, array[v_found]);
      v_ranks := array_fill(0, array[coalesce(cardinality(v_rows), 0)]);
      for i in 1..coalesce(cardinality(v_rows), 0) loop
        v_gots[v_ords[i]] := v_gots[v_ords[i]] + 1;
        v_ranks[i] := v_gots[v_ords[i]];
      end loop;
    end if;
    v_got := coalesce(cardinality(v_rows), 0);

    if v_got > 0 then
      -- They come back in the order in which they are updated, which is that of the turns.
      return query
      update fairqueue.fq_message m
      set lease_id = v_lease_id,
        attempts = m.attempts + 1,
        deliveries = m.deliveries + 1,
        slots = case when v_limited[u.ord] then 1 else 0 end
      from (
        select t.row, t.ord
        from unnest(v_rows, v_ords, v_ranks) t(row, ord, rank)
        order by case when t.rank <= v_turns_left[t.ord] then 0 else 1 + (t.rank - v_turns_left[t.ord] - 1) / v_weights[t.ord] end, t.ord, t.rank
      ) u
      where m.ctid = u.row
        and num_nulls(m.lease_id) = 1
      returning m.id, m.ctid, m.channel_id,
        (
          select c.name
          from fairqueue.fq_channel c
          where c.id = m.channel_id
        ),
        m.kind, m.content, m.headers, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries,
        null::bigint, null::bigint, null::bigint[], null::bigint, null::bigint;
    end if;

    -- The new head is the least message that was not taken, one that somebody else has locked included.
    if not v_whole then
      select array_agg(h.dequeue_at), array_agg(h.id)
      into v_next_heads_at, v_next_head_ids
      from unnest(v_channels, v_heads_at, v_head_ids) u(channel_id, head_at, head_id)
      left join lateral (
        select x.dequeue_at, x.id
        from fairqueue.fq_message x
        where x.channel_id = u.channel_id
          and x.lease_id is null
          and (x.dequeue_at, x.id) >= (u.head_at, u.head_id)
        order by x.channel_id, x.dequeue_at, x.id
        limit 1
      ) h on true;
    end if;
    update fairqueue.fq_channel_state s
    set turn = s.turn + 1,
      current_concurrency = s.current_concurrency + case when s.max_concurrency is null then 0 else n.got end,
      release_at = case
        when n.got > 0 then greatest(s.release_at, v_now) + n.got * s.release_interval
        else s.release_at
      end,
      head_dequeue_at = n.head_at,
      head_message_id = n.head_id,
      last_dequeue_at = case when n.got > 0 then n.place else s.last_dequeue_at end,
      credit = fairqueue.fq_credit_after(s.weight, n.turn_left, n.got, n.head_at, v_now),
      next_dequeue_at = fairqueue.fq_place_after(
        s.next_dequeue_at, n.place, n.turn_left, n.got, n.head_at, v_now, s.release_at, s.release_interval, s.release_burst
      )
    from (
      select u.*
      from unnest(v_states, v_gots, v_quotas, v_places, v_turns_left, v_next_heads_at, v_next_head_ids) u(row, got, quota, place, turn_left, head_at, head_id)
      where u.quota > 0
    ) n
    where s.ctid = n.row;
    v_left := v_left - v_got;
    v_place := greatest(v_place, fairqueue.fq_now());
    -- Channels that turned out to be empty must not hide the ready ones behind them: look further at once, and wider.
    if v_got = 0 then
      v_empty := v_empty + 1;
      v_width := least(2 * v_width, 100000);
    else
      v_width := v_left;
    end if;
  end loop;

  if v_new_lease then
    if v_left < p_limit then
      insert into fairqueue.fq_lease (id, queue, consumer, expires_at)
      values (v_lease_id, p_queue, p_consumer, v_expires_at);
    else
      v_lease_id := null;
      v_expires_at := null;
    end if;
  end if;

  if v_left > 0 then
    select least(
      (
        select s.next_dequeue_at
        from fairqueue.fq_channel_state s
        where s.queue = p_queue
          and s.next_dequeue_at is not null
          and (s.max_concurrency is null or s.current_concurrency < s.max_concurrency)
        order by s.queue, s.next_dequeue_at
        limit 1
      ),
      (
        select e.expires_at
        from fairqueue.fq_lease e
        where e.queue = p_queue
        order by e.queue, e.expires_at
        limit 1
      )
    ) into due_in;
    due_in := case when due_in is not null then greatest(0, due_in - fairqueue.fq_now()) end;
  else
    due_in := 0;
  end if;
  if signals_after is not null or v_heard < v_seen then
    due_in := 0;
  end if;

  message_id := null;
  lease_id := v_lease_id;
  lease_expires_at := v_expires_at;
  -- A channel that became due while this call ran was left alone: the next call must find it, so that the floor stays at the start.
  hints := array[least(v_channel_floor, v_now), v_signal_floor, v_signal_mark, v_mark_xid, v_full_at];
  return next;
end
$$;
