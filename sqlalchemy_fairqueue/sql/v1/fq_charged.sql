-- fq_charged: the cost with which a leased message counts against limits. p_charged, p_cost: its columns.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_charged(p_charged integer, p_cost integer)
returns bigint
language sql
immutable parallel safe
as $$
  select greatest(0, coalesce(p_charged, p_cost, 1))::bigint
$$;
