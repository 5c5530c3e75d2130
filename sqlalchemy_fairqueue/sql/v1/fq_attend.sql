-- fq_attend: what one call at a time does for a queue: expired leases come back, due priorities are promoted, changed
-- plans are spread, signals are heard, channels become due. p_now, p_settings: from fq_look, as p_signalled, p_expired,
-- p_promotions, p_due, p_plans. p_limit: what the call would take.
-- Returns the locked row of the dispatcher's state, and the state as fq_note is to write it; both null: another call
-- attends. must_note: it has to be written. heard: signals applied; seen: signals read; has_more: there are more of
-- them; moved: channels that became ready; spread_in: as fq_spread_plans. The first ready channel as fq_look.
-- Guarantees: until the transaction ends nobody else places a channel in the ready order, so the floor of the order is
-- its first channel, locked or not, and a channel that becomes ready starts behind it or, while none is ready, behind
-- the last one that was. While the first one stands still for a second, new ones start beside those that are served.
-- Locks: the newest row of the queue's state for no key update, skip locked; what its steps lock: it waits for none.
-- Index: fq_queue_state_newest_ix; those of its steps. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_attend(
  p_queue text,
  p_now bigint,
  p_limit integer,
  p_settings fairqueue.fq_queue,
  p_signalled boolean,
  p_expired boolean,
  p_promotions boolean,
  p_due boolean,
  p_plans boolean,
  out row_id tid,
  out state fairqueue.fq_queue_state,
  out must_note boolean,
  out heard integer,
  out seen integer,
  out has_more boolean,
  out moved integer,
  out spread_in bigint,
  out first_tag bigint,
  out first_channel bigint,
  out turn bigint
)
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  c_chunk constant integer := 1000;
  c_still constant bigint := 1000000;
  c_first constant bigint := -9223372036854775808;
  v_by_cost boolean := (p_settings.fair_by <> 'messages') is true;
  v_locked record;
  v_virtual_time bigint;
  v_followed integer;
  v_first_due bigint;
  h record;
begin
  must_note := false;
  heard := 0;
  seen := 0;
  has_more := false;
  moved := 0;
  select s.ctid as row, (s.*)::fairqueue.fq_queue_state as state,
    s.heard_below <= pg_snapshot_xmax(pg_current_snapshot()) and age(s.xmin) <= age(s.heard_below::xid) as is_trusted
  into v_locked
  from (
    select n.ctid as row, n.row_version
    from fairqueue.fq_queue_state n
    where n.queue = p_queue
    order by n.queue desc, n.row_version desc
    limit 1
  ) newest
  join fairqueue.fq_queue_state s on s.ctid = newest.row and s.row_version is not distinct from newest.row_version
  for no key update of s skip locked;
  if not found then
    return;
  end if;
  row_id := v_locked.row;
  state := v_locked.state;
  if not v_locked.is_trusted then
    state.heard_below := '0';
    state.heard_open := '{}';
    must_note := true;
  end if;

  -- A new statement: it sees what the last holder of the lock has written.
  for v_pass in 1..2 loop
    select f.tag, f.channel_id, fairqueue.fq_turn(f.tag, f.tag_rest, f.weight, f.head_message_id, v_by_cost)
    into first_tag, first_channel, turn
    from fairqueue.fq_first_ready(p_queue, state.ready_floor, state.ready_channel) f;
    v_virtual_time := coalesce(first_tag, greatest(fairqueue.fq_greatest_tag(p_queue), state.ready_floor));
    exit when v_virtual_time <= -1000000000000000000 or not fairqueue.fq_rebase_tags(p_queue);
    state.ready_floor := c_first;
    must_note := true;
  end loop;
  if (v_virtual_time, coalesce(first_channel, 0)) <> (state.ready_floor, state.ready_channel) then
    state.ready_floor := v_virtual_time;
    state.ready_channel := coalesce(first_channel, 0);
    state.still_since := p_now;
  end if;
  state.still_since := least(state.still_since, p_now);
  if state.due_floor > p_now then
    -- A call that began later has attended before: what is placed from now on may be due earlier.
    state.due_floor := p_now;
    must_note := true;
  end if;
  if first_tag is not null and state.still_since <= p_now - c_still then
    v_virtual_time := fairqueue.fq_virtual_time(p_queue, first_tag::bigint);
  end if;
  -- Who becomes ready stands behind the floor, whatever its id.
  v_virtual_time := v_virtual_time + 1;

  if p_expired then
    perform fairqueue.fq_reclaim(p_queue, c_chunk);
  end if;
  if p_promotions then
    perform fairqueue.fq_promote(p_queue, c_chunk, p_now);
  end if;
  if p_plans then
    select p.followed, p.due_in into v_followed, spread_in
    from fairqueue.fq_spread_plans(p_queue, c_chunk) p;
  end if;
  if p_signalled or p_expired or p_promotions or v_followed > 0 then
    h := fairqueue.fq_hear_signals(
      p_queue, state.heard_below, state.heard_open::xid8[], c_chunk, v_virtual_time, p_now,
      (must_note or p_limit >= 10 or p_now not between state.noted_at and state.noted_at + 10000)::boolean
    );
    heard := h.heard;
    seen := h.seen;
    has_more := seen = c_chunk;
    must_note := must_note or seen >= 100;
    if h.freed > 0 then
      state.current_concurrency := state.current_concurrency - h.freed;
      must_note := true;
    end if;
    v_first_due := h.first_due;
    if v_first_due < state.due_floor then
      state.due_floor := v_first_due;
      must_note := true;
    end if;
    if h.below is not null then
      state.heard_below := h.below;
      state.heard_open := h.open;
    end if;
  end if;
  if p_due or v_first_due <= p_now then
    moved := fairqueue.fq_move_due(
      p_queue, p_now, state.due_floor, greatest(c_chunk, p_limit)::integer, v_virtual_time
    );
  end if;
  if heard > 0 and first_tag is not null then
    -- What messages cost more than was charged has moved the first channel on.
    select f.tag, f.channel_id, fairqueue.fq_turn(f.tag, f.tag_rest, f.weight, f.head_message_id, v_by_cost)
    into first_tag, first_channel, turn
    from fairqueue.fq_first_ready(p_queue, state.ready_floor, state.ready_channel) f;
  end if;
end
$$;
