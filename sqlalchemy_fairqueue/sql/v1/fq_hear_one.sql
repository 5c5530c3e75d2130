-- fq_hear_one: apply one signal, as a queue without a backlog has: half the cost of fq_hear_many. Arguments and results
-- as there.
-- Guarantees: as fq_hear_signals. Nobody can apply the signal of a channel that is not there: it is deleted.
-- Locks: the channel's state row for no key update, then the signal for update, both skip locked.
-- Index: fq_channel_state_newest_ix; rows by ctid. Errors: none.
create function fairqueue.fq_hear_one(
  p_row tid,
  p_id bigint,
  p_channel_id bigint,
  p_virtual_time bigint,
  p_now bigint,
  out heard integer,
  out freed bigint,
  out first_due bigint
)
language plpgsql
volatile
as $$
#variable_conflict use_column
declare
  v_state tid;
  s record;
  g fairqueue.fq_signal;
  v_lower boolean;
  v_until bigint;
  v_has_room boolean;
  v_was_ready boolean;
  v_is_ready boolean;
begin
  heard := 0;
  select o.ctid as row, o.* into s
  from (
    select n.ctid as row, n.row_version
    from fairqueue.fq_channel_state n
    where n.channel_id = p_channel_id
    order by n.channel_id desc, n.row_version desc
    limit 1
  ) newest
  join fairqueue.fq_channel_state o
    on o.ctid = newest.row
    and o.row_version is not distinct from newest.row_version
    and o.channel_id is not distinct from p_channel_id
  for no key update of o skip locked;
  v_state := s.row;
  if not found then
    -- An exists would drop the order, and read all dead versions.
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
  where o.ctid = (
      select c.ctid
      from fairqueue.fq_signal c
      where c.ctid = p_row
        and c.id is not distinct from p_id
      for update skip locked
    )
  returning o.* into g;
  if not found then
    return;
  end if;
  heard := 1;
  freed := g.queue_freed;
  if v_state is null then
    return;
  end if;
  -- A channel that was at its limit is placed anew.
  v_was_ready := s.next_dequeue_at < 0 and (s.max_concurrency is null or s.current_concurrency < s.max_concurrency);
  v_lower := g.message_id is not null
    and (s.head_dequeue_at is null or (g.dequeue_at, g.message_id) < (s.head_dequeue_at, s.head_message_id));
  if v_lower then
    s.head_dequeue_at := g.dequeue_at;
    s.head_message_id := g.message_id;
  end if;
  s.current_concurrency := s.current_concurrency - g.freed;
  v_has_room := s.max_concurrency is null or s.current_concurrency < s.max_concurrency;
  v_until := greatest(
    0, s.head_dequeue_at, fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst)
  );
  v_is_ready := v_was_ready
    or (
      s.paused_at is null
      and (s.next_dequeue_at is not null or v_lower)
      and v_has_room
      and v_until <= p_now
    );
  if g.cost <> 0 or (v_is_ready and s.tag_rest < 0) then
    select h.tag, h.rest into s.tag, s.tag_rest
    from fairqueue.fq_tag_heard(
      (case when v_was_ready then s.next_dequeue_at end)::bigint, s.tag, s.tag_rest, s.weight, g.cost::bigint,
      (v_is_ready is true)::boolean, p_virtual_time
    ) h;
  elsif v_is_ready and v_was_ready is not true then
    s.tag := greatest(s.tag, p_virtual_time);
  end if;
  s.next_dequeue_at := case
    when v_is_ready then s.tag
    when v_lower and s.paused_at is null then least(s.next_dequeue_at, v_until)
    else s.next_dequeue_at
  end;
  update fairqueue.fq_channel_state o
  set row_version = o.row_version + 1,
    current_concurrency = s.current_concurrency,
    backlog = o.backlog + g.added,
    heard_id = greatest(o.heard_id, g.id),
    dropped = o.dropped + g.dropped,
    head_dequeue_at = s.head_dequeue_at,
    head_message_id = s.head_message_id,
    tag = s.tag,
    tag_rest = s.tag_rest,
    next_dequeue_at = s.next_dequeue_at
  where o.ctid = v_state;
  if s.next_dequeue_at >= 0 and v_has_room then
    first_due := s.next_dequeue_at;
  end if;
end
$$;
