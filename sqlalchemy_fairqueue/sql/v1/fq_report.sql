-- fq_report: end a dequeue: write down what it took from the limits of its queue, and what it found if it attended to
-- the queue. p_limit, p_got: messages wanted and taken; p_sight: of fq_queue_room, with spent, their cost. p_stop: why
-- it ended: 'locked': it could not begin; 'cut': p_max_bytes; 'again': after 32 passes; 'passed': others have ready
-- channels locked; 'full': a quota in cost of the queue holds back a message. Returns as fq_due_in.
-- Guarantees: the dispatch row is written if it must be, and else every 10 ms at most.
-- Locks: as fq_draw. Index: as fq_due_in and fq_note. Errors: none.
create function fairqueue.fq_report(
  p_queue text, p_limit integer, p_sight record, p_got integer, p_stop text, p_now bigint,
  out due_in bigint, out is_held boolean
)
language plpgsql
as $$
declare
  v_state fairqueue.fq_queue_state := p_sight.state;
  v_must_note boolean := p_sight.must_note;
  v_progress boolean := p_got + p_sight.heard + p_sight.moved > 0;
  v_full boolean := (p_got = p_sight.room and p_sight.room < p_limit or p_stop = 'full') is true;
  v_unheard boolean;
  v_contends boolean;
  v_opens_at bigint;
  d record;
begin
  if p_sight.is_limited and p_got > 0 then
    v_state.current_concurrency := v_state.current_concurrency + p_got;
    v_state.current_cost := v_state.current_cost + p_sight.spent;
    v_state.rate_at := fairqueue.fq_rate_after(
      greatest(v_state.rate_at, p_now)::bigint,
      (case when v_state.rate_of = 'cost' then p_sight.spent else p_got end)::bigint, v_state.rate_interval
    );
    v_must_note := true;
  end if;
  is_held := false;
  if p_sight.is_drawn then
    v_contends := v_full and exists (
      select
      from fairqueue.fq_first_ready(p_queue, v_state.ready_floor, v_state.ready_channel, false::boolean, false::boolean)
    );
    v_opens_at := fairqueue.fq_draw(
      p_queue, p_sight.limits::text[], p_got, (p_sight.spent + v_state.owed_cost)::bigint, v_contends
    );
    v_must_note := v_must_note or v_state.owed_cost <> 0;
    v_state.owed_cost := 0;
  end if;
  if v_contends or p_sight.is_held_back then
    v_opens_at := coalesce(v_opens_at, p_now + 20000);
  end if;
  if p_got = p_limit or (p_sight.has_more and v_progress) or p_stop in ('cut', 'again') then
    due_in := 0;
  elsif p_sight.is_paused then
    due_in := null;
  elsif p_stop = 'locked' or p_sight.room is null then
    due_in := 10000;
    is_held := p_stop is not null;
  else
    if v_full then
      v_opens_at := greatest(
        v_opens_at, fairqueue.fq_rate_allows_at(v_state.rate_at, v_state.rate_interval, v_state.rate_burst)
      );
    end if;
    v_unheard := case when p_sight.dispatch_row is null then p_sight.has_work else p_sight.heard < p_sight.seen end;
    d := fairqueue.fq_due_in(
      p_queue, v_state, (v_unheard or p_sight.has_more or coalesce(p_stop = 'passed', false))::boolean,
      (v_full is not true)::boolean,
      (case when v_opens_at > p_now then v_opens_at end)::bigint, p_now
    );
    due_in := d.due_in;
    is_held := d.is_held;
    if is_held and p_got > 0 then
      due_in := 0;
      is_held := false;
    end if;
  end if;
  due_in := least(due_in, p_sight.spread_in);
  if p_sight.dispatch_row is null then
    return;
  end if;
  if v_progress or not is_held then
    v_must_note := v_must_note or v_state.held_since is not null;
    v_state.held_since := null;
  elsif v_state.held_since is null or v_state.held_since > p_now then
    v_state.held_since := p_now;
  end if;
  if v_must_note
    or (
      (v_progress or v_state.still_since = p_now or v_state.held_since = p_now)
      and p_sight.may_note
    )
  then
    perform fairqueue.fq_note(p_sight.dispatch_row::tid, v_state, p_now);
  end if;
end
$$;
