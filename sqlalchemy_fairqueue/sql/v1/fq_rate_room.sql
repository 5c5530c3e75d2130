-- fq_rate_room: how many messages, or how much cost, a rate allows now; null: there is no rate.
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
      greatest(0, (p_now + p_rate_burst * p_rate_interval - greatest(p_rate_at, p_now)) / p_rate_interval)
  end
$$;
