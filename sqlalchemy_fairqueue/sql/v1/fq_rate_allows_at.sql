-- fq_rate_allows_at: when a channel's rate allows its next message; null: it has no rate.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_rate_allows_at(p_release_at bigint, p_release_interval bigint, p_release_burst integer)
returns bigint
language sql
immutable parallel safe
as $$
  select case when p_release_interval > 0 then p_release_at - (p_release_burst - 1) * p_release_interval end
$$;
