-- fq_hear_one: apply one signal, the usual case of a queue without a backlog, at half the cost of fq_hear_many.
-- p_by_cost: the tag moves by what messages cost. Results as fq_hear_signals.
-- Guarantees: as fq_hear_signals. A signal of a channel that is gone is deleted.
-- Locks: the channel's state row for no key update, skip locked; the signal, as fq_hear_many.
-- Index: fq_channel_state_newest_ix; rows by ctid. Errors: none.
create function fairqueue.fq_hear_one(
  p_row tid, p_id bigint, p_channel_id bigint, p_by_cost boolean, p_virtual_time bigint, p_now bigint,
  out heard integer, out freed bigint, out freed_cost bigint, out costs bigint, out first_due bigint
)
language plpgsql
as $$
declare
  v_locked record;
  v_state tid;
  s fairqueue.fq_channel_state;
  g fairqueue.fq_signal;
  v_lower boolean;
  v_opens_at bigint;
  v_was_ready boolean;
  v_is_ready boolean;
begin
  heard := 0;
  select o.ctid as row, o as state into v_locked
  from fairqueue.fq_newest_place(p_channel_id) newest
  join fairqueue.fq_channel_state o
    on o.ctid = newest.state_row
    and o.row_version is not distinct from newest.row_version
    and o.channel_id is not distinct from p_channel_id
  for no key update of o skip locked;
  v_state := v_locked.row;
  s := v_locked.state;
  if v_state is null then
    -- An exists would drop the order, and read all dead versions of the row.
    select o.ctid into v_state
    from fairqueue.fq_channel_state o
    where o.channel_id = p_channel_id
    order by o.channel_id desc, o.row_version desc
    limit 1;
    if found then
      return;
    end if;
  end if;
  delete from fairqueue.fq_signal o
  where o.ctid = p_row
    and o.id is not distinct from p_id
  returning o.* into g;
  if not found then
    return;
  end if;
  heard := 1;
  freed := g.queue_freed;
  freed_cost := g.queue_freed_cost;
  costs := g.cost;
  if v_state is null then
    return;
  end if;
  v_was_ready := s.ready_tag is not null;
  v_lower := g.message_id is not null
    and (s.head_dequeue_at is null or (g.dequeue_at, g.message_id) < (s.head_dequeue_at, s.head_message_id));
  if v_lower then
    s.head_dequeue_at := g.dequeue_at;
    s.head_message_id := g.message_id;
  end if;
  s.current_concurrency := s.current_concurrency - g.freed;
  s.current_cost := s.current_cost - coalesce(g.freed_cost, 0);
  if s.rate_of = 'cost' then
    s.rate_at := fairqueue.fq_rate_after(s.rate_at, coalesce(g.cost, 0)::bigint, s.rate_interval);
  end if;
  v_opens_at := fairqueue.fq_opens_at(
    s.head_dequeue_at, s.paused_at,
    fairqueue.fq_has_room(s.max_concurrency, s.current_concurrency::bigint, s.max_cost_out, s.current_cost), s.rate_at,
    s.rate_interval, s.rate_burst
  );
  v_is_ready := (v_was_ready and s.rate_of = 'messages') or (v_opens_at <= p_now) is true;
  if p_by_cost and g.cost <> 0 or (v_is_ready and s.tag_rest < 0) then
    select h.tag, h.rest into s.tag, s.tag_rest
    from fairqueue.fq_tag_heard(
      s.ready_tag, s.tag, s.tag_rest, s.weight, (case when p_by_cost then g.cost end)::bigint, v_is_ready, p_virtual_time
    ) h;
  elsif v_is_ready and not v_was_ready then
    s.tag := greatest(s.tag, p_virtual_time);
  end if;
  first_due := case when not v_is_ready then v_opens_at end;
  update fairqueue.fq_channel_state o
  set row_version = o.row_version + 1,
    current_concurrency = s.current_concurrency,
    current_cost = s.current_cost,
    rate_at = s.rate_at,
    backlog = o.backlog + g.added,
    heard_id = greatest(o.heard_id, g.id),
    dropped = o.dropped + g.dropped,
    head_dequeue_at = s.head_dequeue_at,
    head_message_id = s.head_message_id,
    tag = s.tag,
    tag_rest = s.tag_rest,
    mean_cost = fairqueue.fq_mean_cost(o.mean_cost, g.took),
    ready_tag = case when v_is_ready then s.tag end,
    due_at = first_due
  where o.ctid = v_state;
end
$$;
