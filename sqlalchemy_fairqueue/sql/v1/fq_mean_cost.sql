-- fq_mean_cost: the moving average of what the messages of a channel took: p_mean (null: unknown), moved an eighth of
-- the way to p_took, the average of the messages that one hearing tells of (null: none).
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_mean_cost(p_mean bigint, p_took bigint)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when p_took is null then p_mean
    when p_mean between 0 and 1000000000 then p_mean + (greatest(0, least(p_took, 1000000000)) - p_mean) / 8
    else greatest(0, least(p_took, 1000000000))
  end
$$;
