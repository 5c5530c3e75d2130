-- fq_hear_signals: apply one chunk of signals of a queue to the state of their channels: lower the head, schedule idle
-- channels, free slots, count. Results as fq_hear. p_virtual_time: where a channel that becomes ready stands at the
-- earliest, so that it saves nothing up while it is idle; null: none becomes ready, the next dequeue moves it. What
-- messages cost more than was charged moves the tag of their channel, see fq_tag_heard.
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
  v_cost bigint;
  v_now bigint := fairqueue.fq_now();
  -- where it stands in the ready order, or when it comes there; when it may be ready; whether it is or becomes so
  v_next bigint;
  v_until bigint;
  v_is_ready boolean;
  v_tag bigint;
  v_rest bigint;
  v_weight integer;
begin
  heard := 0;
  seen := 0;
  -- One signal, as a queue without a backlog has, is applied by statements of its own: starting those for many costs
  -- more than their run. They stand here, since a function of their own costs 3 % of a dequeue of one message.
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
  if not v_only then
    select h.heard, h.seen, h.first_id, h.last_id, h.scheduled_at
    into heard, seen, first_id, last_id, scheduled_at
    from fairqueue.fq_hear_chunk(p_queue, p_after, p_limit, p_virtual_time) h;
    return;
  end if;
  seen := 1;
  first_id := v_first_id;
  last_id := v_first_id;
  select s.ctid, s.next_dequeue_at, s.tag, s.tag_rest, s.weight, l.lower, u.until,
    s.next_dequeue_at < 0
      or (
        p_virtual_time is not null
        and (s.next_dequeue_at is not null or (l.lower and s.paused_at is null))
        and (s.max_concurrency is null or s.current_concurrency - v_freed < s.max_concurrency)
        and u.until <= v_now
      )
  into v_state, v_next, v_tag, v_rest, v_weight, v_lower, v_until, v_is_ready
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
  cross join lateral (
    select v_message_id is not null
      and (s.head_dequeue_at is null or (v_dequeue_at, v_message_id) < (s.head_dequeue_at, s.head_message_id)) as lower
  ) l
  cross join lateral (
    select
      case
        when s.paused_at is null then
          greatest(
            0, case when l.lower then v_dequeue_at else s.head_dequeue_at end,
            fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst)
          )
      end as until
  ) u
  for no key update of s skip locked;
  if not found then
    -- Nobody can apply the signal of a channel that is not there: it would wake every dequeue.
    delete from fairqueue.fq_signal g
    where g.ctid = (
        select c.ctid
        from fairqueue.fq_signal c
        where c.ctid = v_row
          and c.id is not distinct from v_first_id
          -- An exists would drop the order, and read all dead versions.
          and (
            select o.channel_id
            from fairqueue.fq_channel_state o
            where o.channel_id = v_channel_id
            order by o.channel_id desc, o.row_version desc
            limit 1
          ) is null
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
  if v_cost <> 0 or (v_is_ready and v_rest < 0) then
    select h.tag, h.rest into v_tag, v_rest
    from fairqueue.fq_tag_heard(v_next, v_tag, v_rest, v_weight, v_cost, (v_is_ready is true)::boolean, p_virtual_time) h;
  elsif v_is_ready and (v_next < 0) is not true then
    v_tag := greatest(v_tag, p_virtual_time);
  end if;
  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    current_concurrency = s.current_concurrency - v_freed,
    backlog = s.backlog + v_added,
    heard_id = greatest(s.heard_id, v_first_id),
    dropped = s.dropped + v_dropped,
    head_dequeue_at = case when v_lower then v_dequeue_at else s.head_dequeue_at end,
    head_message_id = case when v_lower then v_message_id else s.head_message_id end,
    tag = v_tag,
    tag_rest = v_rest,
    next_dequeue_at = case
      when v_is_ready then v_tag
      when v_lower then least(s.next_dequeue_at, v_until)
      else s.next_dequeue_at
    end
  where s.ctid = v_state
  returning case when s.max_concurrency is null or s.current_concurrency < s.max_concurrency then s.next_dequeue_at end
  into scheduled_at;
end
$$;
