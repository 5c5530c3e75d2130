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
set jit = off
as $$
#variable_conflict use_column
declare
  c_chunk constant integer := 1000;
  c_nothing constant bigint := -9223372036854775808;
  v_now bigint := fairqueue.fq_now();
  v_lease_id bigint;
  v_expires_at bigint;
  v_new_lease boolean;
  -- hints: least place in line found, signals below are gone, signals below may be gone, once writers below this xid ended, next full scan
  v_channel_floor bigint := coalesce(p_hints[1], c_nothing);
  v_signal_floor bigint := coalesce(p_hints[2], 0);
  v_signal_mark bigint := p_hints[3];
  v_mark_xid bigint := p_hints[4];
  v_full_at bigint := coalesce(p_hints[5], 0);
  v_full boolean := v_now >= v_full_at or v_full_at > v_now + 60000000;
  v_started bigint;
  v_scan_cost bigint := 0;
  v_ended_xid bigint;
  v_heard record;
  v_rows tid[];
  v_found integer;
  v_first bigint;
  v_width integer := p_limit;
  v_left integer := p_limit;
  v_got integer;
  v_place bigint := v_now;
  v_empty integer := 0;
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
  select e.id, e.expires_at into v_lease_id, v_expires_at
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

  v_started := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
  v_ended_xid := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
  select * into v_heard
  from fairqueue.fq_hear(p_queue, case when v_full then 0 else v_signal_floor end, c_chunk);
  v_scan_cost := (extract(epoch from clock_timestamp()) * 1000000)::bigint - v_started;
  signals_after := case when v_heard.seen = c_chunk then v_heard.last_id end;
  if v_mark_xid <= v_ended_xid then
    -- Whoever drew an id below the mark has ended, and this scan saw what they left: below both nothing can come up any more.
    v_signal_floor := greatest(v_signal_floor, least(v_signal_mark, v_heard.first_id - 1));
    v_mark_xid := null;
  end if;
  if v_mark_xid is null and v_heard.seen > 0 then
    v_signal_mark := v_heard.last_id;
    v_mark_xid := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  end if;
  v_channel_floor := least(v_channel_floor, v_heard.scheduled_at);
  if v_full then
    v_channel_floor := c_nothing;
  end if;

  while v_left > 0 and v_empty < 32 loop
    v_started := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    -- A row that changed since the snapshot fails the join on turn when it is looked at again: it has another place in line now.
    select array_agg(l.row), count(*), min(l.next_dequeue_at)
    into v_rows, v_found, v_first
    from (
      select s.ctid as row, s.next_dequeue_at
      from (
        select r.ctid as row, r.turn, r.next_dequeue_at, r.channel_id
        from fairqueue.fq_channel_state r
        where r.queue = p_queue
          and r.next_dequeue_at is not null
          and (r.max_concurrency is null or r.current_concurrency < r.max_concurrency)
          and r.next_dequeue_at >= v_channel_floor
          and r.next_dequeue_at <= v_place
        order by r.queue, r.next_dequeue_at, r.channel_id
      ) ready
      join fairqueue.fq_channel_state s on s.ctid = ready.row and s.turn is not distinct from ready.turn and s.channel_id is not distinct from ready.channel_id
      order by ready.next_dequeue_at, ready.channel_id
      limit v_width
      for no key update of s skip locked
    ) l;
    if v_channel_floor = c_nothing and v_full then
      v_scan_cost := v_scan_cost + (extract(epoch from clock_timestamp()) * 1000000)::bigint - v_started;
      v_full_at := v_now + 10 * v_scan_cost;
      v_full := false;
    end if;
    if v_found = 0 then
      exit when v_channel_floor = c_nothing;
      v_channel_floor := c_nothing;
      continue;
    end if;
    v_channel_floor := v_first;

    -- A new statement, whose snapshot is younger than the locks: a message whose signal was heard before is seen.
    return query
    with owned as materialized (
      select s.ctid as row, s.*, u.ord,
        case when s.credit > 0 then s.credit else s.weight end as turn_left,
        greatest(1, v_left / sum(s.weight) over ()) as turns,
        s.release_at - (s.release_burst - 1) * s.release_interval as released_at
      from unnest(v_rows) with ordinality u(row, ord)
      join fairqueue.fq_channel_state s on s.ctid = u.row
    ),
    allowed as (
      select o.*,
        greatest(0, least(
          v_left,
          o.turn_left + (o.turns - 1) * o.weight,
          o.max_concurrency - o.current_concurrency,
          case
            when o.release_interval = 0 then null
            when o.released_at > v_now then 0
            else (v_now - greatest(o.released_at, v_now - (o.release_burst - 1) * o.release_interval)) / o.release_interval + 1
          end
        ))::integer as most
      from owned o
    ),
    picked as materialized (
      select a.ord, a.row, a.channel_id, a.weight, a.turn_left, a.most, a.head_dequeue_at, a.head_message_id, a.max_concurrency is not null as limited,
        least(a.most, greatest(0, v_left - (sum(a.most) over (order by a.ord rows unbounded preceding) - a.most)))::integer as quota
      from allowed a
    ),
    -- Rows carry what is known of their channel from step to step: steps are never joined with each other, which would be quadratic.
    seen as materialized (
      select f.*, f.rn <= f.quota and f.dequeue_at <= v_now as wanted
      from (
        select p.ord, p.row as channel_row, p.channel_id, p.weight, p.turn_left, p.limited, p.quota, m.row, m.id, m.dequeue_at,
          row_number() over (partition by p.ord order by m.dequeue_at, m.id) as rn
        from picked p
        left join lateral (
          select x.ctid as row, x.id, x.dequeue_at
          from fairqueue.fq_message x
          where x.channel_id = p.channel_id
            and x.lease_id is null
            and (x.dequeue_at, x.id) >= (p.head_dequeue_at, p.head_message_id)
          order by x.channel_id, x.dequeue_at, x.id
          limit p.quota + 1
        ) m on p.quota > 0
        where p.quota > 0
          or p.most = 0
      ) f
    ),
    held as materialized (
      select s.ord, s.channel_id, s.weight, s.turn_left, s.limited, s.rn, m.ctid as row, m.id
      from seen s
      join fairqueue.fq_message m on m.ctid = s.row and m.id is not distinct from s.id and m.lease_id is null
      where s.wanted
      for no key update of m skip locked
    ),
    -- Messages that somebody else has locked are passed by: the turn goes on behind them.
    short as (
      select b.ord, b.channel_id, b.weight, b.turn_left, b.limited, max(b.quota) as quota, sum(b.missing) as missing,
        max(b.dequeue_at) filter (where b.rn = b.quota) as last_dequeue_at,
        max(b.id) filter (where b.rn = b.quota) as last_id
      from (
        select s.ord, s.channel_id, s.weight, s.turn_left, s.limited, s.quota, s.rn, s.dequeue_at, s.id, 1 as missing
        from seen s
        where s.wanted
        union all
        select h.ord, h.channel_id, h.weight, h.turn_left, h.limited, null, null, null, null, -1
        from held h
      ) b
      where (select count(*) from held) < (select count(*) from seen s where s.wanted)
      group by b.ord, b.channel_id, b.weight, b.turn_left, b.limited
      having sum(b.missing) > 0
    ),
    behind as materialized (
      select h.ord, h.channel_id, h.weight, h.turn_left, h.limited, h.quota + row_number() over (partition by h.ord) as rn, m.row, m.id
      from short h
      cross join lateral (
        select x.ctid as row, x.id
        from fairqueue.fq_message x
        where x.channel_id = h.channel_id
          and x.lease_id is null
          and (x.dequeue_at, x.id) > (h.last_dequeue_at, h.last_id)
          and x.dequeue_at <= v_now
        order by x.channel_id, x.dequeue_at, x.id
        limit h.missing
        for no key update skip locked
      ) m
    ),
    taken as (
      update fairqueue.fq_message m
      set lease_id = v_lease_id,
        attempts = m.attempts + 1,
        deliveries = m.deliveries + 1,
        slots = case when t.limited then 1 else 0 end
      from (
        select h.ord, h.channel_id, h.weight, h.turn_left, h.limited, h.rn, h.row, h.id from held h
        union all
        select b.ord, b.channel_id, b.weight, b.turn_left, b.limited, b.rn, b.row, b.id from behind b
      ) t
      where m.ctid = t.row
        and m.id is not distinct from t.id
        and m.lease_id is null
      returning m.ctid as row, m.id, m.channel_id, m.kind, m.content, m.headers, m.dequeue_at, m.enqueued_at, m.attempts, m.max_attempts,
        m.deliveries, t.ord, t.rn, t.turn_left, t.weight
    ),
    served as materialized (
      select r.ord, max(r.channel_row) as row, max(r.channel_id) as channel_id, max(r.quota) as quota, sum(r.got)::integer as got,
        min(array[r.dequeue_at, r.id]) filter (where r.got = 0) as head
      from (
        select b.ord, b.id, max(b.channel_row) as channel_row, max(b.channel_id) as channel_id, max(b.quota) as quota, max(b.dequeue_at) as dequeue_at,
          max(b.got) as got
        from (
          select s.ord, s.channel_row, s.channel_id, s.quota, s.id, s.dequeue_at, 0 as got
          from seen s
          union all
          select t.ord, null, t.channel_id, null, t.id, null, 1
          from taken t
        ) b
        group by b.ord, b.id
      ) r
      group by r.ord
    ),
    turned as (
      update fairqueue.fq_channel_state s
      set turn = s.turn + 1,
        current_concurrency = s.current_concurrency + case when s.max_concurrency is null then 0 else n.got end,
        release_at = case when s.release_interval > 0 then n.release_at else s.release_at end,
        head_dequeue_at = n.head_at,
        head_message_id = n.head_id,
        last_dequeue_at = case when n.got > 0 then n.place else s.last_dequeue_at end,
        credit = case
          when n.head_at is null or n.head_at > v_now then 0
          when n.got < n.turn_left then n.turn_left - n.got
          else (s.weight - (n.got - n.turn_left) % s.weight) % s.weight
        end,
        next_dequeue_at = case
          when n.head_at is null then null
          else greatest(
            case
              when n.head_at > v_now then n.head_at
              -- Every message that could be taken is in somebody else's hands: look again shortly.
              when n.got = 0 and n.quota > 0 then n.place + 10000
              when n.got < n.turn_left then s.next_dequeue_at
              else n.place
            end,
            case when s.release_interval > 0 then n.release_at - (s.release_burst - 1) * s.release_interval end
          )
        end
      from (
        select r.row, r.channel_id, r.quota, r.got, v_place + r.ord as place,
          case when o.credit > 0 then o.credit else o.weight end as turn_left,
          case when r.quota > 0 then r.head[1] else o.head_dequeue_at end as head_at,
          case when r.quota > 0 then r.head[2] else o.head_message_id end as head_id,
          case
            when r.got > 0 then greatest(o.release_at, v_now) + r.got * o.release_interval
            else o.release_at
          end as release_at
        from served r
        join fairqueue.fq_channel_state o on o.ctid = r.row
      ) n
      where s.ctid = n.row
        and s.channel_id is not distinct from n.channel_id
    )
    select t.id, t.row, t.channel_id, c.name, t.kind, t.content, t.headers, t.enqueued_at, t.attempts, t.max_attempts, t.deliveries,
      null::bigint, null::bigint, null::bigint[], null::bigint, null::bigint
    from taken t
    join fairqueue.fq_channel c on c.id = t.channel_id
    order by case when t.rn <= t.turn_left then 0 else 1 + (t.rn - t.turn_left - 1) / t.weight end, t.ord, t.rn;

    get diagnostics v_got = row_count;
    v_left := v_left - v_got;
    v_place := v_place + v_found;
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
    due_in := greatest(0, due_in - fairqueue.fq_now());
  else
    due_in := 0;
  end if;
  if signals_after is not null or v_heard.heard < v_heard.seen then
    due_in := 0;
  end if;

  message_id := null;
  lease_id := v_lease_id;
  lease_expires_at := v_expires_at;
  hints := array[v_channel_floor, v_signal_floor, v_signal_mark, v_mark_xid, v_full_at];
  return next;
end
$$;
