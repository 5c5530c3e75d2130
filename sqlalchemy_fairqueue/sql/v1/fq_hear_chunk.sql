-- fq_hear_chunk: what fq_hear_signals does where a queue has several signals, or one that frees a slot of the queue.
-- Arguments and results are the same.
-- Guarantees: as fq_hear_signals. Slots of the queue's limit are freed while the queue's state row is locked, whether
-- their signal's channel can be locked or not.
-- Locks: the newest row of the queue's state, then state rows of channels, for no key update, then signals for update,
-- all skip locked. Index: as fq_hear_signals. Errors: none.
-- Its caller sets how its statements are planned. It is one function: signals that are applied in another one cost 3 to
-- 4 % of a dequeue of two messages.
create function fairqueue.fq_hear_chunk(
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
  -- channels that are not there, and their signals
  v_lost bigint;
  v_orphans integer := 0;
  v_queue_state tid;
  v_queue_heard bigint;
  v_queue_freed bigint;
  v_now bigint := fairqueue.fq_now();
begin
  heard := 0;
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
  with known as materialized (
    select c.id, c.first, c.signals, newest.row, newest.row_version
    from (
      select u.id, min(u.ord) as first, count(*) as signals
      from unnest(v_channels) with ordinality u(id, ord)
      group by u.id
    ) c
    left join lateral (
      select n.ctid as row, n.row_version
      from fairqueue.fq_channel_state n
      where n.channel_id = c.id
      order by n.channel_id desc, n.row_version desc
      limit 1
    ) newest on true
  )
  select array_agg(l.row), array_agg(l.first), array_agg(l.signals),
    (select count(*) from known k where num_nulls(k.row) = 1)
  into v_states, v_firsts, v_counts, v_lost
  from (
    select s.ctid as row, k.first, k.signals
    from known k
    join fairqueue.fq_channel_state s
      on s.ctid = k.row
      and s.row_version is not distinct from k.row_version
      and s.channel_id is not distinct from k.id
    for no key update of s skip locked
  ) l;
  if v_lost > 0 then
    v_orphans := fairqueue.fq_drop_orphans(v_rows, v_ids, v_channels);
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
      head_dequeue_at = n.head_at,
      head_message_id = n.head_id,
      tag = coalesce(h.tag, n.tag),
      tag_rest = coalesce(h.rest, n.rest),
      next_dequeue_at = case
        when n.is_ready then coalesce(h.tag, n.tag)
        when n.lower then least(n.next_at, n.until)
        else n.next_at
      end
    from told t
    cross join lateral (
      select l.*,
        case
          when l.next_at < 0 then l.next_at
          when l.is_ready then greatest(l.tag_before, p_virtual_time)
          else l.tag_before
        end as tag
      from (
        select u.*,
          (
            u.next_at < 0
            or (
              p_virtual_time is not null
              and (u.next_at is not null or (u.lower and u.until is not null))
              and (u.max_concurrency is null or u.current_concurrency - t.freed < u.max_concurrency)
              and u.until <= v_now
            )
          ) is true as is_ready
        from (
          select o.next_dequeue_at as next_at, o.max_concurrency, o.current_concurrency, o.weight, o.tag as tag_before,
            o.tag_rest as rest, b.lower,
            case when b.lower then t.dequeue_at else o.head_dequeue_at end as head_at,
            case when b.lower then t.message_id else o.head_message_id end as head_id,
            case
              when o.paused_at is null then
                greatest(
                  0, case when b.lower then t.dequeue_at else o.head_dequeue_at end,
                  fairqueue.fq_rate_allows_at(o.rate_at, o.rate_interval, o.rate_burst)
                )
            end as until
          from fairqueue.fq_channel_state o
          cross join lateral (
            select t.message_id is not null
              and (o.head_dequeue_at is null or (t.dequeue_at, t.message_id) < (o.head_dequeue_at, o.head_message_id))
              as lower
          ) b
          where o.ctid = t.state
        ) u
      ) l
    ) n
    left join lateral fairqueue.fq_tag_heard(
      n.next_at::bigint, n.tag_before::bigint, n.rest::bigint, n.weight::integer, t.cost::bigint, n.is_ready::boolean,
      p_virtual_time
    ) h on t.cost <> 0 or (n.is_ready and n.rest < 0)
    where s.ctid = t.state
    returning s.next_dequeue_at, s.max_concurrency is null or s.current_concurrency < s.max_concurrency as served
  )
  select
    (select coalesce(sum(t.signals), 0) from told t),
    (select coalesce(sum(t.queue_signals), 0) from told t),
    (select coalesce(sum(t.queue_freed), 0) from told t),
    -- Of each channel heard of, changed or not: configuration sends a signal when a channel is ready again.
    (select min(a.next_dequeue_at) from applied a where a.served)
  into heard, v_queue_heard, v_queue_freed, scheduled_at;
  heard := heard + v_orphans;

  if v_queue_state is null then
    return;
  end if;
  if v_queue_heard < v_freeing then
    v_queue_freed := v_queue_freed + fairqueue.fq_free_queue_slots(v_rows, v_ids);
  end if;
  update fairqueue.fq_queue_state q
  set row_version = q.row_version + 1,
    current_concurrency = q.current_concurrency - v_queue_freed
  where q.ctid = v_queue_state
    and v_queue_freed > 0;
end
$$;
