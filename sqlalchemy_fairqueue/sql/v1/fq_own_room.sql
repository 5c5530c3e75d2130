-- fq_own_room: how many of p_wanted messages a queue's own limit, quota in cost and rate let out now. p_state: its
-- dispatch row. A rate or quota in cost counts only when it is used up.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_own_room(p_state fairqueue.fq_queue_state, p_wanted integer, p_now bigint)
returns integer
language sql
immutable parallel safe
as $$
  select greatest(
    0,
    least(
      p_wanted, p_state.max_concurrency - p_state.current_concurrency,
      case when p_state.max_cost_out <= p_state.current_cost then 0 end,
      case
        when p_state.rate_of = 'messages'
          or fairqueue.fq_rate_room(p_now, p_state.rate_at, p_state.rate_interval, p_state.rate_burst) = 0
        then
          fairqueue.fq_rate_room(p_now, p_state.rate_at, p_state.rate_interval, p_state.rate_burst)
      end
    )
  )::integer
$$;
