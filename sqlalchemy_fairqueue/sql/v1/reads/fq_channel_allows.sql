-- fq_channel_allows: how many further messages a channel lets consumers take now (null: any number): none while it is
-- paused or its max_cost_out holds its head back (p_is_spent); else what its max_concurrency, of which p_current are
-- used, and its rate leave; below 0 if more are out.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_channel_allows(
  p_paused_at bigint, p_is_spent boolean, p_max_concurrency integer, p_current bigint, p_rate_at bigint,
  p_rate_interval bigint, p_rate_burst integer, p_now bigint
)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when p_paused_at is not null or p_is_spent then 0
    else least(p_max_concurrency - p_current, fairqueue.fq_rate_room(p_now, p_rate_at, p_rate_interval, p_rate_burst))
  end
$$;
