-- fq_is_spent: whether max_cost_out holds back a message of p_next_cost, while messages of p_current_cost are out.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_is_spent(p_max_cost_out integer, p_current_cost bigint, p_next_cost bigint)
returns boolean
language sql
immutable parallel safe
as $$
  select (p_current_cost > 0 and p_current_cost + p_next_cost > p_max_cost_out) is true
$$;
