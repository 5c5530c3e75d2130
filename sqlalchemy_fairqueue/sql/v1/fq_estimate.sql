-- fq_estimate: what a message that names no cost is charged at its delivery. p_mean: what messages of its channel took
-- lately (null: unknown); p_is_timed: its queue is fair by seconds.
-- Guarantees: at most two seconds, and as much if p_mean is null: what runs longer is charged while it runs, see
-- fq_correct_costs. One expression, which the planner inlines.
-- Locks: none. Errors: none.
create function fairqueue.fq_estimate(p_mean bigint, p_is_timed boolean)
returns integer
language sql
immutable parallel safe
as $$
  select case when p_is_timed then greatest(0, least(p_mean, 2000))::integer else 1 end
$$;
