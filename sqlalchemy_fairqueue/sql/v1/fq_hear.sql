-- fq_hear: apply one chunk of a queue's signals to the state of their channels: lower the head, schedule an idle channel, free slots.
-- Guarantees: a signal is dropped only together with its effect, while its channel's state row is locked; signals of a channel
-- that somebody else holds stay. Call again with p_after = last_id while seen = p_limit, so that those never fill every chunk.
-- heard: signals applied; seen: signals read; first_id, last_id: their least and greatest id; scheduled_at: least place in line given to a channel.
-- Locks: state rows for no key update, signals for update, both skip locked; whoever holds a channel's state row is the only one to delete its signals.
-- Index: fq_signal_pkey, fq_channel_state_newest_ix; rows by ctid. Errors: QF001 bad argument.
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
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_rows tid[];
  v_ids bigint[];
  v_channels bigint[];
  v_states tid[];
  v_firsts bigint[];
  v_counts bigint[];
begin
  if p_queue is null or p_after is null or p_limit is null or p_limit < 1 then
    raise exception 'fq_hear has queue %, after %, limit %', p_queue, p_after, p_limit
      using errcode = 'QF001', hint = 'name a queue, a signal id to go on after (0: from the first) and a limit of 1 or more';
  end if;
  heard := 0;
  select array_agg(s.row), array_agg(s.id), array_agg(s.channel_id), count(*), min(s.id), max(s.id)
  into v_rows, v_ids, v_channels, seen, first_id, last_id
  from (
    select c.*
    from (
      select g.ctid as row, g.id, g.channel_id
      from fairqueue.fq_signal g
      where g.queue = p_queue
        and g.id > p_after
      order by g.queue, g.id
      limit p_limit
    ) c
    order by c.channel_id
  ) s;
  if seen = 0 then
    return;
  end if;

  -- A channel's signals are a stretch of the arrays. (To look them up by channel would be a nested loop: quadratic.)
  -- A state row that changed since the snapshot fails the join on turn when it is looked at again: its holder was here a moment ago.
  -- ("is not distinct from" is no index condition: rows are reached by their ctid, whatever the planner thinks of an index.)
  select array_agg(l.row), array_agg(l.first), array_agg(l.signals)
  into v_states, v_firsts, v_counts
  from (
    select s.ctid as row, c.first, c.signals
    from (
      select u.id, min(u.ord) as first, count(*) as signals
      from unnest(v_channels) with ordinality u(id, ord)
      group by u.id
    ) c
    cross join lateral (
      select n.ctid as row, n.turn
      from fairqueue.fq_channel_state n
      where n.channel_id = c.id
      order by n.channel_id desc, n.turn desc
      limit 1
    ) newest
    join fairqueue.fq_channel_state s on s.ctid = newest.row and s.turn is not distinct from newest.turn and s.channel_id is not distinct from c.id
    for no key update of s skip locked
  ) l;
  if v_states is null then
    return;
  end if;

  -- A new statement, whose snapshot is younger than the locks: what another hearing applied before is not seen again.
  -- Nobody but the holder of the state row deletes signals; skip locked is for whoever looks at them by hand, for dequeue waits for nobody.
  with claimed as materialized (
    select l.state, g.ctid as row
    from unnest(v_states, v_firsts, v_counts) l(state, first, signals)
    cross join lateral generate_series(l.first, l.first + l.signals - 1) i
    join fairqueue.fq_signal g on g.ctid = v_rows[i] and g.id is not distinct from v_ids[i]
    for update of g skip locked
  ),
  dropped as (
    delete from fairqueue.fq_signal g
    using claimed c
    where g.ctid = c.row
    returning c.state, g.dequeue_at, g.message_id, g.freed
  ),
  told as materialized (
    select d.state, d.signals, d.freed, d.least[1] as dequeue_at, d.least[2] as message_id
    from (
      select d.state, count(*) as signals, sum(d.freed) as freed,
        min(array[d.dequeue_at, d.message_id]) filter (where d.message_id is not null) as least
      from dropped d
      group by d.state
    ) d
  ),
  applied as (
    update fairqueue.fq_channel_state s
    set turn = s.turn + 1,
      current_concurrency = s.current_concurrency - t.freed,
      head_dequeue_at = case when n.lower then t.dequeue_at else s.head_dequeue_at end,
      head_message_id = case when n.lower then t.message_id else s.head_message_id end,
      next_dequeue_at = case when n.lower then least(s.next_dequeue_at, n.place) else s.next_dequeue_at end
    from told t
    join fairqueue.fq_channel_state o on o.ctid = t.state
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
    where s.ctid = t.state
      and (n.lower or t.freed > 0)
    returning s.next_dequeue_at
  )
  select
    (select coalesce(sum(t.signals), 0) from told t),
    (select min(a.next_dequeue_at) from applied a)
  into heard, scheduled_at;
end
$$;
