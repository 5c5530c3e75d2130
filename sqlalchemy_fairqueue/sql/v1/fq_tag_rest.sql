-- fq_tag_rest: the part of a channel's costs that fq_tag_after leaves out of the tag: from 0 to below the weight, or
-- below zero the credit that these costs did not use up. A credit ends with the backlog (p_head_at null).
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_tag_rest(p_rest bigint, p_cost bigint, p_weight integer, p_head_at bigint)
returns bigint
language sql
immutable parallel safe
as $$
  select greatest(
    greatest(0, least(p_cost, 100000000000000)) * 2520 + coalesce(p_rest, 0)
      - greatest(0, greatest(0, least(p_cost, 100000000000000)) * 2520 + coalesce(p_rest, 0))
        / greatest(1, p_weight) * greatest(1, p_weight),
    case when p_head_at is null then 0 end
  )
$$;
