-- fq_report: end a dequeue: write down what it took from the limits of its queue, and what it found if it attended to
-- the queue. p_limit, p_got: messages wanted and taken; p_sight: of fq_queue_room, with spent, their cost. p_stop: why
-- it ended: 'locked': it could not begin; 'cut': p_max_bytes; 'again': after 32 passes; 'passed': others have ready
-- channels locked; 'full': a quota in cost of the queue holds back a message. due_in: microseconds until something may
-- be due (null: nothing is scheduled); is_held: something is due that others have locked, and only they can say for how
-- long; due_in is then as long as it has been locked so far, 10 ms at least and a second at most.
-- Guarantees: the dispatch row is written if it must be, and else every 10 ms at most.
-- Locks: as fq_draw. Index: fq_channel_state_ready_ix, fq_channel_state_due_ix, fq_lease_expires_ix; those of fq_note.
-- Errors: none.
create function fairqueue.fq_report(
  p_queue text, p_limit integer, p_sight record, p_got integer, p_stop text, p_now bigint,
  out due_in bigint, out is_held boolean
)
language plpgsql
as $$
declare
  v_state fairqueue.fq_queue_state;
  v_must_note boolean;
  v_progress boolean;
  v_full boolean;
  v_contends boolean;
  v_opens_at bigint;
  v_first_tag bigint;
  v_due_at bigint;
  v_expires_at bigint;
  v_since bigint;
begin
  is_held := false;
  -- Nothing is to be written down, and there may be more.
  if p_got = p_limit and p_sight.dispatch_row is null and not p_sight.is_limited then
    due_in := 0;
    return;
  end if;
  v_state := p_sight.state;
  v_must_note := p_sight.must_note;
  v_progress := p_got + p_sight.heard + p_sight.moved > 0;
  v_full := (p_got = p_sight.room and p_sight.room < p_limit or p_stop = 'full') is true;
  if p_sight.is_limited and p_got > 0 then
    v_state.current_concurrency := v_state.current_concurrency + p_got;
    v_state.current_cost := v_state.current_cost + p_sight.spent;
    v_state.rate_at := fairqueue.fq_rate_after(
      greatest(v_state.rate_at, p_now)::bigint,
      (case when v_state.rate_of = 'cost' then p_sight.spent else p_got end)::bigint, v_state.rate_interval
    );
    v_must_note := true;
  end if;
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
    select f.tag, w.due_at, e.expires_at into v_first_tag, v_due_at, v_expires_at
    from (values (p_queue)) asked (name)
    left join lateral fairqueue.fq_first_ready(
      asked.name, v_state.ready_floor, v_state.ready_channel, false::boolean, false::boolean
    ) f on not v_full
    left join lateral (
      select s.due_at
      from fairqueue.fq_channel_state s
      where s.queue = asked.name
        and s.due_at >= least(v_state.due_floor, p_now)
      order by s.queue, s.due_at
      limit 1
    ) w on not v_full
    left join lateral (
      -- A consumer that waits and holds nothing gives nothing back.
      select x.expires_at
      from fairqueue.fq_lease x
      where x.queue = asked.name
        and x.expires_at >= case
          when v_state.swept_at between p_now - 100000 and p_now then v_state.lease_floor
          else 0
        end
        and (x.waiting_until is null or x.waiting_until < x.expires_at)
      order by x.queue, x.expires_at
      limit 1
    ) e on true;
    -- An expired lease is still there if somebody has its messages locked.
    is_held := (
      not v_full and (
        p_sight.has_more or p_stop = 'passed' or v_first_tag is not null or v_due_at <= p_now
        or case when p_sight.dispatch_row is null then p_sight.has_work else p_sight.heard < p_sight.seen end
      )
      or v_expires_at <= p_now
    ) is true;
    if is_held and p_got > 0 then
      due_in := 0;
      is_held := false;
    elsif is_held then
      v_since := least(
        case when v_first_tag = v_state.ready_floor then v_state.still_since end, v_state.held_since, p_now
      );
      due_in := greatest(10000, least(p_now - v_since, 1000000));
    else
      v_due_at := least(v_due_at, case when v_opens_at > p_now then v_opens_at end, v_expires_at);
      due_in := case when v_due_at is not null then greatest(0, v_due_at - fairqueue.fq_now()) end;
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
