-- fq_report: the end of a dequeue: what its queue drew from shared limits is written down, and what it found where it
-- attended to the queue (p_row: the row of the state, null: it did not). p_wanted, p_limit, p_got: messages that it was
-- asked for, that the limits of the queue let it take (null: somebody has them locked), and that it took. p_stop: why it
-- ended: 'locked': it could not begin; 'cut': by bytes; 'again': it may go on; 'passed': others have ready channels.
-- p_drawn: from shared limits, too; p_progress: something changed; p_must_note: the state must be written; p_unheard:
-- there are signals that it did not hear, since they are locked; p_more: there are others.
-- Returns as fq_due_in. Guarantees: the state is written every 10 ms at most where it need not be, and fewer than
-- 10 messages were taken.
-- Locks: as fq_draw. Index: as fq_due_in and fq_note. Errors: none.
create function fairqueue.fq_report(
  p_queue text, p_settings fairqueue.fq_queue, p_state fairqueue.fq_queue_state, p_row tid, p_wanted integer,
  p_limit integer, p_got integer, p_stop text, p_drawn boolean, p_progress boolean, p_must_note boolean,
  p_unheard boolean, p_more boolean, p_now bigint,
  out due_in bigint, out is_held boolean
)
language plpgsql
volatile
as $$
declare
  v_full boolean := p_got = p_limit and p_limit < p_wanted;
  v_contends boolean;
  v_opens_at bigint;
  d record;
begin
  is_held := false;
  if p_drawn then
    v_contends := v_full and exists (
      select
      from fairqueue.fq_first_ready(p_queue, p_state.ready_floor, p_state.ready_channel)
    );
    v_opens_at := fairqueue.fq_draw(p_queue, p_settings.limits::text[], p_got, v_contends);
    if v_contends then
      v_opens_at := coalesce(v_opens_at, p_now + 20000);
    end if;
  end if;
  if p_got = p_wanted or (p_more and p_progress) or p_stop in ('cut', 'again') then
    due_in := 0;
  elsif p_settings.paused_at is not null then
    due_in := null;
  elsif p_stop = 'locked' or p_limit is null then
    due_in := 10000;
    is_held := p_stop is not null;
  else
    if v_full then
      v_opens_at := greatest(
        v_opens_at, fairqueue.fq_rate_allows_at(p_state.rate_at, p_state.rate_interval, p_state.rate_burst)
      );
    end if;
    d := fairqueue.fq_due_in(
      p_queue, p_state, ((p_unheard or p_more or p_stop = 'passed') is true)::boolean, (v_full is not true)::boolean,
      (case when v_opens_at > p_now then v_opens_at end)::bigint, p_now
    );
    due_in := d.due_in;
    is_held := d.is_held;
    if is_held and p_got > 0 then
      due_in := 0;
      is_held := false;
    end if;
  end if;
  if p_row is null then
    return;
  end if;
  if p_progress or not is_held then
    p_must_note := p_must_note or p_state.held_since is not null;
    p_state.held_since := null;
  elsif p_state.held_since is null or p_state.held_since > p_now then
    p_state.held_since := p_now;
  end if;
  if p_must_note
    or (
      (p_progress or p_state.still_since = p_now or p_state.held_since = p_now)
      and (p_got >= 10 or p_now not between p_state.noted_at and p_state.noted_at + 10000)
    )
  then
    perform fairqueue.fq_note(p_row, p_state, p_now);
  end if;
end
$$;
