-- fq_is_spent: whether a max_cost_out holds a message back that costs p_next_cost, while p_current_cost is out.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_is_spent(p_max_cost_out integer, p_current_cost bigint, p_next_cost bigint)
returns boolean
language sql
immutable parallel safe
as $$
  select (p_current_cost > 0 and p_current_cost + p_next_cost > p_max_cost_out) is true
$$;
