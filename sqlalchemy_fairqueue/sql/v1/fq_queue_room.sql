-- fq_queue_room: find out what the limits of a queue let a dequeue take now: its limit, quotas in cost, rate and shared
-- limits. p_sight: of fq_attend. The caller counts what it takes in the dispatch row, and by fq_draw if is_drawn.
-- Returns the sight with room: how many messages may go; rate_left: another message may go while the call has spent
-- less than this; cost_left: what all may cost together; first_left: what the first may cost (null: anything);
-- is_drawn: it has shared limits locked.
-- Guarantees: nobody else takes from these limits until the caller's transaction ends. room is null if another
-- transaction has the dispatch row or a shared limit while there is something to do, or if the queue's shared limits
-- have changed.
-- Locks: the states of its shared limits for no key update, skip locked: it waits for none.
-- Index: fq_queue_pkey; those of fq_draw_room. Errors: none.
create function fairqueue.fq_queue_room(p_queue text, p_sight record, p_now bigint)
returns record
language plpgsql
as $$
declare
  v_state fairqueue.fq_queue_state := p_sight.state;
  v_room integer := fairqueue.fq_own_room(v_state, p_sight.room, p_now);
  r record;
begin
  if p_sight.dispatch_row is null then
    p_sight.room := case
      when p_sight.is_held_back then 0
      when not p_sight.has_work and (p_sight.first_tag is null or not p_sight.must_attend) then v_room
    end;
    return p_sight;
  end if;
  if p_sight.limits is distinct from (
    select q.limits
    from fairqueue.fq_queue q
    where q.name = p_queue
  ) then
    -- A change of the limits that is not committed yet has the dispatch row locked, or waits for it.
    p_sight.room := null;
    return p_sight;
  end if;
  p_sight.room := v_room;
  p_sight.cost_left := v_state.max_cost_out - v_state.current_cost;
  p_sight.first_left := case when v_state.current_cost > 0 then p_sight.cost_left end;
  p_sight.rate_left := case
    when v_state.rate_of = 'cost' then
      fairqueue.fq_rate_room(p_now, v_state.rate_at, v_state.rate_interval, v_state.rate_burst)
  end;
  if p_sight.limits is not null and p_sight.room > 0 then
    r := fairqueue.fq_draw_room(p_queue, p_sight.limits::text[], p_sight.room::integer, v_state);
    p_sight.room := r.room;
    p_sight.is_drawn := r.room is not null;
    p_sight.rate_left := least(p_sight.rate_left, r.rate_left);
    p_sight.cost_left := least(p_sight.cost_left, r.cost_left);
    p_sight.first_left := least(p_sight.first_left, r.first_left);
  end if;
  return p_sight;
end
$$;
