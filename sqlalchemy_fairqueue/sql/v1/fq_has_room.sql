-- fq_has_room: whether a channel is below its max_concurrency and max_cost_out, so that a further message may go. Null:
-- it has neither.
-- Guarantees: one expression, which the planner inlines. A message whose cost does not fit waits all the same, see
-- fq_fit_costs. Locks: none. Errors: none.
create function fairqueue.fq_has_room(
  p_max_concurrency integer, p_current_concurrency bigint, p_max_cost_out integer, p_current_cost bigint
)
returns boolean
language sql
immutable parallel safe
as $$
  select p_current_concurrency < p_max_concurrency and p_current_cost < p_max_cost_out
$$;
