-- fq_hear: apply one chunk of a queue's signals to the state of their channels: lower the head, schedule an idle channel, free slots.
-- Guarantees: a signal is dropped only together with its effect, while its channel's state row is locked; signals of a channel
-- that somebody else holds stay. Call again with p_after = last_id while seen = p_limit, so that those never fill every chunk.
-- heard: signals applied; seen: signals read; first_id, last_id: their least and greatest id; scheduled_at: least place in line given to a channel.
-- Locks: state rows for no key update skip locked; whoever holds a channel's state row is the only one to delete its signals.
-- Index: fq_signal_pkey, fq_channel_state_newest_ix; rows by ctid. Errors: none. Source: signals coalesced by channel, as in DESIGN 3.
create function fairqueue.fq_hear(
  p_queue text,
  p_after bigint,
  p_limit integer,
  out heard integer,
  out seen integer,
  out first_id bigint,
  out last_id bigint,
  out scheduled_at bigint
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
  v_rows tid[];
  v_ids bigint[];
  v_channels bigint[];
  v_states tid[];
  v_locked bigint[];
begin
  heard := 0;
  select array_agg(s.row order by s.id), array_agg(s.id order by s.id), array_agg(s.channel_id order by s.id), count(*), min(s.id), max(s.id)
  into v_rows, v_ids, v_channels, seen, first_id, last_id
  from (
    select g.ctid as row, g.id, g.channel_id
    from fairqueue.fq_signal g
    where g.queue = p_queue
      and g.id > p_after
    order by g.queue, g.id
    limit p_limit
  ) s;
  if seen = 0 then
    return;
  end if;

  -- A state row that changed since the snapshot fails the join on ctid when it is looked at again: its holder was here a moment ago.
  select array_agg(l.row), array_agg(l.channel_id)
  into v_states, v_locked
  from (
    select s.ctid as row, s.channel_id
    from (select distinct u.id from unnest(v_channels) u(id)) c
    cross join lateral (
      select n.ctid as row
      from fairqueue.fq_channel_state n
      where n.channel_id = c.id
      order by n.channel_id desc, n.turn desc
      limit 1
    ) newest
    join fairqueue.fq_channel_state s on s.ctid = newest.row and s.channel_id = c.id
    for no key update of s skip locked
  ) l;
  if v_states is null then
    return;
  end if;

  -- A new statement, whose snapshot is younger than the locks: what another hearing applied before is not seen again.
  with dropped as (
    delete from fairqueue.fq_signal g
    using (
      select u.row, u.id
      from unnest(v_rows, v_ids, v_channels) u(row, id, channel_id)
      where u.channel_id in (select l.id from unnest(v_locked) l(id))
    ) u
    where g.ctid = u.row
      and g.queue = p_queue
      and g.id = u.id
    returning g.channel_id, g.dequeue_at, g.message_id, g.freed
  ),
  counted as (
    select d.channel_id, count(*) as signals, sum(d.freed) as freed
    from dropped d
    group by d.channel_id
  ),
  least_ready as (
    select distinct on (d.channel_id) d.channel_id, d.dequeue_at, d.message_id
    from dropped d
    where d.message_id is not null
    order by d.channel_id, d.dequeue_at, d.message_id
  ),
  told as materialized (
    select c.channel_id, c.signals, c.freed, r.dequeue_at, r.message_id
    from counted c
    left join least_ready r on r.channel_id = c.channel_id
  ),
  applied as (
    update fairqueue.fq_channel_state s
    set turn = s.turn + 1,
      current_concurrency = s.current_concurrency - t.freed,
      head_dequeue_at = case when n.lower then t.dequeue_at else s.head_dequeue_at end,
      head_message_id = case when n.lower then t.message_id else s.head_message_id end,
      next_dequeue_at = case when n.lower then least(s.next_dequeue_at, n.place) else s.next_dequeue_at end
    from unnest(v_states, v_locked) l(row, channel_id)
    join told t on t.channel_id = l.channel_id
    join fairqueue.fq_channel_state o on o.ctid = l.row
    cross join lateral (
      select
        t.message_id is not null
          and (o.next_dequeue_at is null or (t.dequeue_at, t.message_id) < (o.head_dequeue_at, o.head_message_id)) as lower,
        -- As if it had stood in line since its last service or, if later, since the message came: nobody gains a turn by being idle.
        greatest(
          t.dequeue_at,
          o.last_dequeue_at,
          case when o.release_interval > 0 then o.release_at - (o.release_burst - 1) * o.release_interval end
        ) as place
    ) n
    where s.ctid = l.row
      and s.channel_id = l.channel_id
      and (n.lower or t.freed > 0)
    returning s.next_dequeue_at
  )
  select
    (select coalesce(sum(t.signals), 0) from told t),
    (select min(a.next_dequeue_at) from applied a)
  into heard, scheduled_at;
end
$$;
