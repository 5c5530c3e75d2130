-- fq_attend: do for a queue what one call at a time does: take expired leases back, promote due priorities, spread
-- changed plans, hear signals, make channels ready whose time has come. p_sight: of fq_look; p_limit: how many messages
-- the dequeue wants. Returns the sight with dispatch_row: the row that this call has locked (null: another call has it,
-- and nothing was done); state: its new contents; must_note: they must be kept; heard, seen, has_more, moved, spread_in.
-- Guarantees: until the transaction ends no other call makes a channel ready, so ready_floor rises to the first ready
-- channel. A channel that becomes ready starts behind the first one or, while none is ready, behind the greatest tag;
-- if the first one has stood still for a second, behind the second one; or at its own tag if that is greater.
-- Locks: the newest version of the dispatch row for no key update, and those of its steps, all skip locked: it waits for
-- none. Index: fq_queue_state_newest_ix, those of its steps. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_attend(p_queue text, p_limit integer, p_sight record, p_now bigint)
returns record
language plpgsql
as $$
declare
  c_chunk constant integer := 1000;
  c_still constant bigint := 1000000;
  v_locked record;
  v_state fairqueue.fq_queue_state;
  v_first record;
  v_virtual_time bigint;
  v_followed integer;
  v_first_due bigint;
  h record;
begin
  -- Why the join is so: see fq_choose_one.
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
    select f.tag, f.channel_id, f.next_tag into v_first
    from fairqueue.fq_first_ready(
      p_queue, v_state.ready_floor, v_state.ready_channel, p_sight.by_cost::boolean, p_sight.is_timed::boolean
    ) f;
    v_virtual_time := coalesce(v_first.tag, greatest(fairqueue.fq_greatest_tag(p_queue), v_state.ready_floor));
    exit when v_virtual_time <= -1000000000000000000 or not fairqueue.fq_rebase_tags(p_queue);
    v_state.ready_floor := '-9223372036854775808';
    p_sight.must_note := true;
  end loop;
  if (v_virtual_time, coalesce(v_first.channel_id, 0)) <> (v_state.ready_floor, v_state.ready_channel) then
    v_state.ready_floor := v_virtual_time;
    v_state.ready_channel := coalesce(v_first.channel_id, 0);
    v_state.still_since := p_now;
  end if;
  v_state.still_since := least(v_state.still_since, p_now);
  if v_state.due_floor > p_now then
    -- A call whose p_now is later has attended before: what this one places may be due before its floor.
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
  -- A channel that becomes ready stands behind ready_floor, whatever its id.
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
    -- Hear once more: the first hearing may have let messages of ordering keys go, by signals.
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
    -- Costs that were corrected may have moved the first channel on.
    select f.tag, f.channel_id, f.next_tag into v_first
    from fairqueue.fq_first_ready(
      p_queue, v_state.ready_floor, v_state.ready_channel, p_sight.by_cost::boolean, p_sight.is_timed::boolean
    ) f;
  end if;
  p_sight.dispatch_row := v_locked.row;
  p_sight.state := v_state;
  p_sight.first_tag := v_first.tag;
  p_sight.bound_tag := case
    when (v_first.tag = v_state.ready_floor and v_state.still_since <= p_now - c_still) is not true then
      v_first.next_tag
  end;
  return p_sight;
end
$$;
