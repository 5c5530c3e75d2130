-- fq_rate_room: how many messages a channel's rate allows now; null: it has no rate.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_rate_room(
  p_now bigint, p_rate_at bigint, p_rate_interval bigint, p_rate_burst integer
)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when p_rate_interval > 0 then
      (p_now + (p_rate_burst - 1) * p_rate_interval - greatest(p_rate_at, p_now)) / p_rate_interval + 1
  end
$$;
