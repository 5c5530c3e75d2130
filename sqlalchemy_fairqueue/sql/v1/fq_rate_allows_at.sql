-- fq_rate_allows_at: when a rate allows the next message; null: there is no rate.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_rate_allows_at(p_rate_at bigint, p_rate_interval bigint, p_rate_burst integer)
returns bigint
language sql
immutable parallel safe
as $$
  select case when p_rate_interval > 0 then p_rate_at - (p_rate_burst - 1) * p_rate_interval end
$$;
