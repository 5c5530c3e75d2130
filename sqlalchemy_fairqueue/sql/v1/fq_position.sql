-- fq_position: where a message stands in its channel that is ready since p_ready_at: by its priority before all times,
-- or, where the channel ages priorities, as if it had been ready for p_aging longer for each of its steps.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_position(p_ready_at bigint, p_priority integer, p_aging bigint)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when p_priority is null then p_ready_at
    when p_aging is null then -p_priority::bigint
    else p_ready_at - least(p_ready_at::numeric, p_priority::numeric * p_aging)::bigint
  end
$$;
