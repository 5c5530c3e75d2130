-- fq_hear_signals: apply one chunk of signals of a queue to the state of their channels: lower the head, schedule idle
-- channels, free slots, count. Results as fq_hear. p_virtual_time: of a queue that is fair by cost, see
-- fq_virtual_time; 0: it is fair by messages. By what messages cost more than was charged the tag of their channel
-- moves.
-- Guarantees: a signal is dropped only together with its effect, while its channel's state row is locked; signals of a
-- channel that somebody else holds stay. Slots of the queue's limit are freed while the queue's state row is locked,
-- whether their signal's channel can be locked or not. The head of a paused channel is lowered, but it does not become
-- ready. A channel keeps the greatest id that it was told by, heard_id: a sum of what signals will still add to its
-- backlog begins there, and not over all that an old snapshot keeps. Signals of a channel that is gone are deleted.
-- Locks: state rows for no key update, signals for update, both skip locked; the holder of a channel's state row is the
-- only one to delete its signals, and the holder of the queue's the only one to delete or change those that free its
-- slots. Index: fq_signal_pkey, fq_channel_state_newest_ix, fq_queue_state_newest_ix; rows by ctid. Errors: none.
create function fairqueue.fq_hear_signals(
  p_queue text,
  p_after bigint,
  p_limit integer,
  p_virtual_time bigint,
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
  v_freeing bigint;
  -- signals of channels that can be locked, and of channels that are not there
  v_applied bigint;
  v_orphans integer := 0;
  v_queue_state tid;
  v_queue_heard bigint;
  v_queue_freed bigint;
  -- the only signal
  v_only boolean;
  v_row tid;
  v_first_id bigint;
  v_channel_id bigint;
  v_dequeue_at bigint;
  v_message_id bigint;
  v_freed integer;
  v_added integer;
  v_dropped integer;
  v_state tid;
  v_lower boolean;
  v_position bigint;
  v_cost bigint;
  v_costs bigint[];
begin
  heard := 0;
  seen := 0;
  -- One signal, as a queue without a backlog has, is applied by statements of its own: starting those for many costs
  -- more than their run.
  select g.ctid, g.id, g.channel_id, g.dequeue_at, g.message_id, g.freed, g.added, g.dropped, g.cost,
    g.queue_freed = 0 and not exists (
      select
      from fairqueue.fq_signal o
      where o.queue = p_queue
        and o.id > g.id
    )
  into v_row, v_first_id, v_channel_id, v_dequeue_at, v_message_id, v_freed, v_added, v_dropped, v_cost, v_only
  from fairqueue.fq_signal g
  where g.queue = p_queue
    and g.id > p_after
  order by g.queue, g.id
  limit 1;
  if not found then
    return;
  end if;
  if v_only then
    seen := 1;
    first_id := v_first_id;
    last_id := v_first_id;
    select s.ctid,
      v_message_id is not null
        and (s.head_dequeue_at is null or (v_dequeue_at, v_message_id) < (s.head_dequeue_at, s.head_message_id)),
      -- As below: nobody gains a turn by being idle.
      case
        when s.paused_at is null then
          greatest(
            v_dequeue_at, s.last_dequeue_at,
            fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst)
          )
      end
    into v_state, v_lower, v_position
    from (
      select n.ctid as row, n.row_version
      from fairqueue.fq_channel_state n
      where n.channel_id = v_channel_id
      order by n.channel_id desc, n.row_version desc
      limit 1
    ) newest
    join fairqueue.fq_channel_state s
      on s.ctid = newest.row
      and s.row_version is not distinct from newest.row_version
      and s.channel_id is not distinct from v_channel_id
    for no key update of s skip locked;
    if not found then
      -- Nobody can apply the signal of a channel that is not there: it would wake every dequeue.
      delete from fairqueue.fq_signal g
      where g.ctid = (
          select c.ctid
          from fairqueue.fq_signal c
          where c.ctid = v_row
            and c.id is not distinct from v_first_id
            and not exists (
              select
              from fairqueue.fq_channel_state o
              where o.channel_id = v_channel_id
            )
          for update skip locked
        );
      heard := found::integer;
      return;
    end if;
    -- What another hearing applied before is not there any more.
    delete from fairqueue.fq_signal g
    where g.ctid = (
        select c.ctid
        from fairqueue.fq_signal c
        where c.ctid = v_row
          and c.id is not distinct from v_first_id
        for update skip locked
      );
    if not found then
      return;
    end if;
    heard := 1;
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      current_concurrency = s.current_concurrency - v_freed,
      backlog = s.backlog + v_added,
      heard_id = greatest(s.heard_id, v_first_id),
      dropped = s.dropped + v_dropped,
      head_dequeue_at = case when v_lower then v_dequeue_at else s.head_dequeue_at end,
      head_message_id = case when v_lower then v_message_id else s.head_message_id end,
      next_dequeue_at = case when v_lower then least(s.next_dequeue_at, v_position) else s.next_dequeue_at end
    where s.ctid = v_state
    returning
      case when s.max_concurrency is null or s.current_concurrency < s.max_concurrency then s.next_dequeue_at end,
      s.ctid
    into scheduled_at, v_state;
    if p_virtual_time < 0 then
      scheduled_at := least(
        scheduled_at,
        fairqueue.fq_hear_costs(array[v_state]::tid[], array[v_cost]::bigint[], p_virtual_time)
      );
    end if;
    return;
  end if;

  select array_agg(s.row), array_agg(s.id), array_agg(s.channel_id), count(*), min(s.id), max(s.id),
    count(*) filter (where s.queue_freed > 0)
  into v_rows, v_ids, v_channels, seen, first_id, last_id, v_freeing
  from (
    select c.*
    from (
      select g.ctid as row, g.id, g.channel_id, g.queue_freed
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

  if v_freeing > 0 then
    select s.ctid into v_queue_state
    from (
      select n.ctid as row, n.row_version
      from fairqueue.fq_queue_state n
      where n.queue = p_queue
      order by n.queue desc, n.row_version desc
      limit 1
    ) newest
    join fairqueue.fq_queue_state s on s.ctid = newest.row and s.row_version is not distinct from newest.row_version
    for no key update of s skip locked;
  end if;

  -- A channel's signals are a stretch of the arrays. (Finding them by channel would be a nested loop: quadratic.) A
  -- state row that changed since the snapshot fails the join on row_version when PostgreSQL checks it again: its holder
  -- heard a moment ago. ("is not distinct from" is no index condition: the planner reaches rows by ctid and never by an
  -- index.)
  select array_agg(l.row), array_agg(l.first), array_agg(l.signals), coalesce(sum(l.signals), 0)
  into v_states, v_firsts, v_counts, v_applied
  from (
    select s.ctid as row, c.first, c.signals
    from (
      select u.id, min(u.ord) as first, count(*) as signals
      from unnest(v_channels) with ordinality u(id, ord)
      group by u.id
    ) c
    cross join lateral (
      select n.ctid as row, n.row_version
      from fairqueue.fq_channel_state n
      where n.channel_id = c.id
      order by n.channel_id desc, n.row_version desc
      limit 1
    ) newest
    join fairqueue.fq_channel_state s
      on s.ctid = newest.row
      and s.row_version is not distinct from newest.row_version
      and s.channel_id is not distinct from c.id
    for no key update of s skip locked
  ) l;
  if v_applied < seen then
    with orphans as materialized (
      select g.ctid as row
      from unnest(v_rows, v_ids, v_channels) u(row, id, channel_id)
      join fairqueue.fq_signal g on g.ctid = u.row and g.id is not distinct from u.id
      where not exists (
          select
          from fairqueue.fq_channel_state o
          where o.channel_id = u.channel_id
        )
      for update of g skip locked
    )
    delete from fairqueue.fq_signal g
    using orphans o
    where g.ctid = o.row;
    get diagnostics v_orphans = row_count;
  end if;
  if v_states is null and v_queue_state is null then
    heard := v_orphans;
    return;
  end if;

  -- A new statement, whose snapshot is younger than the locks: what another hearing applied before is not seen again.
  -- Only the holder of the state row deletes signals. Skip locked is for sessions that lock them by hand, since dequeue
  -- waits for nobody.
  with claimed as materialized (
    select l.state, g.ctid as row
    from unnest(v_states, v_firsts, v_counts) l(state, first, signals)
    cross join lateral generate_series(l.first, l.first + l.signals - 1) i
    join fairqueue.fq_signal g
      on g.ctid = v_rows[i.i]
      and g.id is not distinct from v_ids[i.i]
      and (g.queue_freed = 0 or v_queue_state is not null)
    for update of g skip locked
  ),
  dropped as (
    delete from fairqueue.fq_signal g
    using claimed c
    where g.ctid = c.row
    returning c.state, g.id, g.dequeue_at, g.message_id, g.freed, g.queue_freed, g.added, g.dropped, g.cost
  ),
  told as materialized (
    select d.state, d.signals, d.last_id, d.freed, d.queue_signals, d.queue_freed, d.added, d.dropped, d.cost,
      d.least[1] as dequeue_at, d.least[2] as message_id
    from (
      select d.state, count(*) as signals, max(d.id) as last_id, sum(d.freed) as freed,
        count(*) filter (where d.queue_freed > 0) as queue_signals, sum(d.queue_freed) as queue_freed,
        sum(d.added) as added, sum(d.dropped) as dropped, sum(d.cost) as cost,
        min(array[d.dequeue_at, d.message_id]) filter (where d.message_id is not null) as least
      from dropped d
      group by d.state
    ) d
  ),
  applied as (
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      current_concurrency = s.current_concurrency - t.freed,
      backlog = s.backlog + t.added,
      heard_id = greatest(s.heard_id, t.last_id),
      dropped = s.dropped + t.dropped,
      head_dequeue_at = case when n.lower then t.dequeue_at else s.head_dequeue_at end,
      head_message_id = case when n.lower then t.message_id else s.head_message_id end,
      next_dequeue_at = case
        when n.lower and s.paused_at is null then least(s.next_dequeue_at, n.position)
        else s.next_dequeue_at
      end
    from told t
    join fairqueue.fq_channel_state o on o.ctid = t.state
    cross join lateral (
      select
        t.message_id is not null
          and (o.head_dequeue_at is null or (t.dequeue_at, t.message_id) < (o.head_dequeue_at, o.head_message_id))
          as lower,
        -- The position that it would have if it had been ready since its last service or, if later, since the message
        -- came: no channel gains a turn by being idle.
        greatest(
          t.dequeue_at,
          o.last_dequeue_at,
          fairqueue.fq_rate_allows_at(o.rate_at, o.rate_interval, o.rate_burst)
        ) as position
    ) n
    where s.ctid = t.state
    returning s.next_dequeue_at, s.max_concurrency is null or s.current_concurrency < s.max_concurrency as served,
      s.ctid as row, t.cost
  )
  select
    (select coalesce(sum(t.signals), 0) from told t),
    (select coalesce(sum(t.queue_signals), 0) from told t),
    (select coalesce(sum(t.queue_freed), 0) from told t),
    -- Of each channel heard of, changed or not: configuration sends a signal when a channel is ready again.
    (select min(a.next_dequeue_at) from applied a where a.served),
    case when p_virtual_time < 0 then (select array_agg(a.row) from applied a) end,
    case when p_virtual_time < 0 then (select array_agg(a.cost) from applied a) end
  into heard, v_queue_heard, v_queue_freed, scheduled_at, v_states, v_costs;
  heard := heard + v_orphans;
  if p_virtual_time < 0 then
    scheduled_at := least(scheduled_at, fairqueue.fq_hear_costs(v_states, v_costs, p_virtual_time));
  end if;

  if v_queue_state is null then
    return;
  end if;
  -- A channel that is locked for long (somebody configures it) must not keep the slots of its queue.
  if v_queue_heard < v_freeing then
    with freeing as materialized (
      select g.ctid as row, g.queue_freed
      from unnest(v_rows, v_ids) u(row, id)
      join fairqueue.fq_signal g on g.ctid = u.row and g.id is not distinct from u.id and g.queue_freed > 0
      for update of g skip locked
    ),
    freed as (
      update fairqueue.fq_signal g
      set queue_freed = 0
      from freeing f
      where g.ctid = f.row
      returning f.queue_freed
    )
    select v_queue_freed + coalesce(sum(f.queue_freed), 0) into v_queue_freed
    from freed f;
  end if;
  update fairqueue.fq_queue_state q
  set row_version = q.row_version + 1,
    current_concurrency = q.current_concurrency - v_queue_freed
  where q.ctid = v_queue_state
    and v_queue_freed > 0;
end
$$;
