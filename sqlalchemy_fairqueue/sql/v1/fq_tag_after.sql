-- fq_tag_after: the start tag of a channel after messages that cost p_cost were taken at p_tag. p_rest: the part of its
-- earlier costs that is not in the tag yet; below zero a credit, which these costs use up first.
-- Guarantees: the quotient by the weight, rounded down; fq_tag_rest has the remainder, so that nothing is lost over
-- time. A tag is below 0. One expression, which the planner inlines.
-- Locks: none. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_tag_after(p_tag bigint, p_rest bigint, p_cost bigint, p_weight integer)
returns bigint
language sql
immutable parallel safe
as $$
  select least(
    p_tag
    + greatest(0, greatest(0, least(p_cost, 100000000000000)) * 2520 + coalesce(p_rest, 0)) / greatest(1, p_weight),
    -1
  )
$$;
