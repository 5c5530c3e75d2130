-- fq_attend: what one call at a time does for a queue, where p_sight, of fq_look, found something to do, or its floor has
-- moved: expired leases come back, due priorities are promoted, changed plans are spread, signals are heard, channels
-- become due. p_limit: what the call would take.
-- row_id: the row of the dispatcher's state, null: there was nothing to do, or another call attends; state: what it says,
-- as fq_note is to write it; must_note: it has to be written. first_tag, turn: as fq_look, but no turn if the first
-- channel has stood still for a second, since who has it may do so for long. heard: signals applied; seen: signals read;
-- has_more: there are more of them; moved: channels that became ready; spread_in: as fq_spread_plans.
-- Guarantees: until the transaction ends nobody else places a channel in the ready order, so the floor of the order is
-- its first channel, locked or not, and a channel that becomes ready starts behind it or, while none is ready, behind
-- the last one that was. While the first one stands still for a second, new ones start beside those that are served.
-- Where fewer than 10 messages are asked for, a floor that has moved is noted every 10 ms at most.
-- Locks: as fq_lock_dispatcher, and what its steps lock: it waits for none. Index: those of its steps. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_attend(
  p_queue text, p_limit integer, p_sight record, p_now bigint,
  out row_id tid, out state fairqueue.fq_queue_state, out first_tag bigint, out turn bigint, out must_note boolean,
  out heard integer, out seen integer, out has_more boolean, out moved integer, out spread_in bigint
)
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  c_chunk constant integer := 1000;
  c_still constant bigint := 1000000;
  c_first constant bigint := -9223372036854775808;
  v_by_cost boolean := ((p_sight.settings).fair_by <> 'messages') is true;
  v_may_note boolean;
  v_locked record;
  v_first_channel bigint := p_sight.first_channel;
  v_virtual_time bigint;
  v_followed integer;
  v_first_due bigint;
  h record;
begin
  state := p_sight.state;
  first_tag := p_sight.first_tag;
  if (first_tag = state.ready_floor and state.still_since <= p_now - c_still) is not true then
    turn := p_sight.turn;
  end if;
  must_note := false;
  heard := 0;
  seen := 0;
  has_more := false;
  moved := 0;
  v_may_note := p_limit >= 10 or p_now not between state.noted_at and state.noted_at + 10000;
  if (
    p_sight.has_work
    or p_sight.is_limited and first_tag < 0
    or v_may_note and (first_tag, v_first_channel) <> (state.ready_floor, state.ready_channel)
  ) is not true then
    return;
  end if;
  v_locked := fairqueue.fq_lock_dispatcher(p_queue);
  if v_locked.row_id is null then
    return;
  end if;
  row_id := v_locked.row_id;
  state := v_locked.state;
  if not v_locked.is_trusted then
    state.heard_below := '0';
    state.heard_open := '{}';
    must_note := true;
  end if;

  -- A new statement: it sees what the last holder of the lock has written.
  for v_pass in 1..2 loop
    select f.tag, f.channel_id, fairqueue.fq_turn(f.tag, f.tag_rest, f.weight, f.head_message_id, v_by_cost)
    into first_tag, v_first_channel, turn
    from fairqueue.fq_first_ready(p_queue, state.ready_floor, state.ready_channel) f;
    v_virtual_time := coalesce(first_tag, greatest(fairqueue.fq_greatest_tag(p_queue), state.ready_floor));
    exit when v_virtual_time <= -1000000000000000000 or not fairqueue.fq_rebase_tags(p_queue);
    state.ready_floor := c_first;
    must_note := true;
  end loop;
  if (v_virtual_time, coalesce(v_first_channel, 0)) <> (state.ready_floor, state.ready_channel) then
    state.ready_floor := v_virtual_time;
    state.ready_channel := coalesce(v_first_channel, 0);
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

  if p_sight.has_expired then
    perform fairqueue.fq_reclaim(p_queue, c_chunk);
  end if;
  if p_sight.has_promotions then
    perform fairqueue.fq_promote(p_queue, c_chunk, p_now);
  end if;
  if p_sight.has_plans then
    select p.followed, p.due_in into v_followed, spread_in
    from fairqueue.fq_spread_plans(p_queue, c_chunk) p;
  end if;
  if p_sight.is_signalled or p_sight.has_expired or p_sight.has_promotions or v_followed > 0 then
    h := fairqueue.fq_hear_signals(
      p_queue, state.heard_below::xid8, state.heard_open::xid8[], c_chunk, v_virtual_time, p_now,
      (must_note or v_may_note)::boolean
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
  if p_sight.is_due or v_first_due <= p_now then
    moved := fairqueue.fq_move_due(
      p_queue, p_now, state.due_floor, greatest(c_chunk, p_limit)::integer, v_virtual_time
    );
  end if;
  if heard > 0 and first_tag is not null then
    -- What messages cost more than was charged has moved the first channel on.
    select f.tag, f.channel_id, fairqueue.fq_turn(f.tag, f.tag_rest, f.weight, f.head_message_id, v_by_cost)
    into first_tag, v_first_channel, turn
    from fairqueue.fq_first_ready(p_queue, state.ready_floor, state.ready_channel) f;
  end if;
  if first_tag = state.ready_floor and state.still_since <= p_now - c_still then
    turn := null;
  end if;
end
$$;
