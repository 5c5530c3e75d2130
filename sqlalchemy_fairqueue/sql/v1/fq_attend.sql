-- fq_attend: what one call at a time does for a queue, if fq_look found something to do (p_sight), or if the first
-- ready channel is another one than the state says: expired leases come back, due priorities are promoted, changed
-- plans are spread, signals are heard, channels become due. p_limit: what the call would take.
-- Returns the sight after it. row_id: the dispatch row, which this call has locked, null: another call has it; state:
-- what it says, as fq_note is to write it; must_note: it has to be written. heard: signals applied; seen: signals read;
-- has_more: there are more of them; moved: channels that became ready; spread_in: as fq_spread_plans.
-- Guarantees: until the transaction ends nobody else places a channel in the ready order, so the floor of the order is
-- its first channel, locked or not, and a channel that becomes ready starts behind it or, while none is ready, behind
-- the greatest tag. If the first one has stood still for a second, new ones start behind the second one.
-- Locks: as fq_lock_dispatcher, and what its steps lock: it waits for none. Index: those of its steps. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_attend(p_queue text, p_limit integer, p_sight record, p_now bigint)
returns record
language plpgsql
as $$
declare
  c_chunk constant integer := 1000;
  c_still constant bigint := 1000000;
  c_first constant bigint := -9223372036854775808;
  v_locked record;
  v_state fairqueue.fq_queue_state;
  v_first record;
  v_virtual_time bigint;
  v_followed integer;
  v_first_due bigint;
  h record;
begin
  v_locked := fairqueue.fq_lock_dispatcher(p_queue);
  if v_locked.row_id is null then
    return p_sight;
  end if;
  v_state := v_locked.state;
  if not v_locked.is_trusted then
    v_state.heard_below := '0';
    v_state.heard_open := '{}';
    p_sight.must_note := true;
  end if;

  -- A new statement: it sees what the last holder of the lock has written.
  for v_pass in 1..2 loop
    select f.tag, f.channel_id, f.turn into v_first
    from fairqueue.fq_first_ready(
      p_queue, v_state.ready_floor, v_state.ready_channel, p_sight.by_cost::boolean, p_sight.is_timed::boolean
    ) f;
    v_virtual_time := coalesce(v_first.tag, greatest(fairqueue.fq_greatest_tag(p_queue), v_state.ready_floor));
    exit when v_virtual_time <= -1000000000000000000 or not fairqueue.fq_rebase_tags(p_queue);
    v_state.ready_floor := c_first;
    p_sight.must_note := true;
  end loop;
  if (v_virtual_time, coalesce(v_first.channel_id, 0)) <> (v_state.ready_floor, v_state.ready_channel) then
    v_state.ready_floor := v_virtual_time;
    v_state.ready_channel := coalesce(v_first.channel_id, 0);
    v_state.still_since := p_now;
  end if;
  v_state.still_since := least(v_state.still_since, p_now);
  if v_state.due_floor > p_now then
    -- A call that began later has attended before: what is placed from now on may be due earlier.
    v_state.due_floor := p_now;
    p_sight.must_note := true;
  end if;
  if v_first.tag is not null and v_state.still_since <= p_now - c_still then
    select s.ready_tag into v_virtual_time
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
      and s.ready_tag > v_first.tag
    order by s.queue, s.ready_tag
    limit 1;
    v_virtual_time := coalesce(v_virtual_time, greatest(v_first.tag, fairqueue.fq_greatest_tag(p_queue)));
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
    select p.followed, p.due_in into v_followed, p_sight.spread_in
    from fairqueue.fq_spread_plans(p_queue, c_chunk) p;
  end if;
  if p_sight.is_signalled or p_sight.has_expired or p_sight.has_promotions or v_followed > 0 then
    -- Once more for the messages that the first hearing let go.
    for v_round in 1..2 loop
      h := fairqueue.fq_hear_signals(
        p_queue, v_state.heard_below::xid8, v_state.heard_open::xid8[], c_chunk, p_sight.by_cost::boolean,
        v_virtual_time, p_now, (p_sight.must_note or p_sight.may_note)::boolean
      );
      p_sight.heard := p_sight.heard + h.heard;
      p_sight.seen := p_sight.seen + h.seen;
      p_sight.has_more := h.seen = c_chunk or h.has_more;
      p_sight.must_note := p_sight.must_note or h.seen >= 100;
      if h.freed > 0 then
        v_state.current_concurrency := v_state.current_concurrency - h.freed;
        v_state.current_cost := v_state.current_cost - coalesce(h.freed_cost, 0);
        p_sight.must_note := true;
      end if;
      if h.costs <> 0 and v_state.rate_of = 'cost' then
        v_state.rate_at := fairqueue.fq_rate_after(v_state.rate_at, h.costs::bigint, v_state.rate_interval);
        p_sight.must_note := true;
      end if;
      if h.costs <> 0 and p_sight.limits is not null then
        v_state.owed_cost := v_state.owed_cost + h.costs;
        p_sight.must_note := true;
      end if;
      v_first_due := least(v_first_due, h.first_due);
      if v_first_due < v_state.due_floor then
        v_state.due_floor := v_first_due;
        p_sight.must_note := true;
      end if;
      if h.below is not null then
        v_state.heard_below := h.below;
        v_state.heard_open := h.open;
      end if;
      exit when not h.has_more;
    end loop;
  end if;
  if p_sight.is_due or v_first_due <= p_now then
    p_sight.moved := fairqueue.fq_move_due(
      p_queue, p_now, v_state.due_floor, greatest(c_chunk, p_limit)::integer, v_virtual_time
    );
  end if;
  if p_sight.heard > 0 and v_first.tag is not null then
    -- What messages cost more than was charged has moved the first channel on.
    select f.tag, f.channel_id, f.turn into v_first
    from fairqueue.fq_first_ready(
      p_queue, v_state.ready_floor, v_state.ready_channel, p_sight.by_cost::boolean, p_sight.is_timed::boolean
    ) f;
  end if;
  p_sight.row_id := v_locked.row_id;
  p_sight.state := v_state;
  p_sight.first_tag := v_first.tag;
  p_sight.turn := case
    when (v_first.tag = v_state.ready_floor and v_state.still_since <= p_now - c_still) is not true then v_first.turn
  end;
  return p_sight;
end
$$;
