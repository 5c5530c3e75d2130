-- fq_due_in: microseconds until something may be due in a queue, for a call that took fewer messages than it wanted;
-- null: nothing is scheduled. p_state: the dispatch row; p_held: something is due that others have locked; p_ready:
-- ready channels count, as they do unless a limit of the queue holds them back until p_opens_at (null: until a signal).
-- Returns is_held: something is due that others have locked, and only they can say for how long.
-- Guarantees: due_in is then as long as it has been locked so far, 10 ms at least and a second at most.
-- Locks: none. Index: fq_channel_state_ready_ix, fq_channel_state_due_ix, fq_lease_expires_ix. Errors: none.
create function fairqueue.fq_due_in(
  p_queue text, p_state fairqueue.fq_queue_state, p_held boolean, p_ready boolean, p_opens_at bigint, p_now bigint,
  out due_in bigint, out is_held boolean
)
language plpgsql
as $$
declare
  v_first_tag bigint;
  v_due_at bigint;
  v_expires_at bigint;
  v_since bigint;
begin
  select f.tag, w.due_at, e.expires_at into v_first_tag, v_due_at, v_expires_at
  from (values (p_queue)) asked (name)
  left join lateral fairqueue.fq_first_ready(
    asked.name, p_state.ready_floor, p_state.ready_channel, false::boolean, false::boolean
  ) f on p_ready
  left join lateral (
    select s.due_at
    from fairqueue.fq_channel_state s
    where s.queue = asked.name
      and s.due_at >= least(p_state.due_floor, p_now)
    order by s.queue, s.due_at
    limit 1
  ) w on p_ready
  left join lateral (
    -- A consumer that waits and holds nothing gives nothing back.
    select x.expires_at
    from fairqueue.fq_lease x
    where x.queue = asked.name
      and x.expires_at >= case
        when p_state.swept_at between p_now - 100000 and p_now then p_state.lease_floor
        else 0
      end
      and (x.waiting_until is null or x.waiting_until < x.expires_at)
    order by x.queue, x.expires_at
    limit 1
  ) e on true;
  -- An expired lease is still there if somebody has its messages locked.
  is_held := (
    (p_ready and (p_held or v_first_tag is not null or v_due_at <= p_now)) or v_expires_at <= p_now
  ) is true;
  if is_held then
    v_since := least(
      case when v_first_tag = p_state.ready_floor then p_state.still_since end, p_state.held_since, p_now
    );
    due_in := greatest(10000, least(p_now - v_since, 1000000));
  else
    v_due_at := least(v_due_at, p_opens_at, v_expires_at);
    due_in := case when v_due_at is not null then greatest(0, v_due_at - fairqueue.fq_now()) end;
  end if;
end
$$;
