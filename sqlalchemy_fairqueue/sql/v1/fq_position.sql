-- fq_position: the position in its channel of a message that is ready since p_ready_at. A message with a priority
-- stands before all messages without one. If the channel ages priorities, it stands instead as if it had been ready for
-- p_aging longer for each step of its priority.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_position(p_ready_at bigint, p_priority integer, p_aging bigint)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when p_priority is null then p_ready_at
    when p_aging is null then -p_priority::bigint
    else p_ready_at - least(p_ready_at::numeric, greatest(0, p_priority::numeric * p_aging))::bigint
  end
$$;
