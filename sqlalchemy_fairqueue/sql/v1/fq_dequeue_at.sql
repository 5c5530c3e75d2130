-- fq_dequeue_at: the position in its channel of a message that is enqueued now: p_at, or p_now + p_delay, if that time
-- is still to come (nobody dequeues the message before it); else what fq_position says.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_dequeue_at(
  p_now bigint, p_delay bigint, p_at bigint, p_priority integer, p_aging bigint
)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when p_at > p_now or p_delay > 0 then greatest(p_at, p_now + coalesce(p_delay, 0))
    else fairqueue.fq_position(p_now, p_priority, p_aging)
  end
$$;
