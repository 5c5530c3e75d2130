-- fq_opens_at: the time from which on a channel may be served: its head, at p_head_at, is due, and its rate allows a
-- message. Null: no time opens it, since it is empty, paused or at its limit, or its messages wait for others of their
-- ordering keys. p_has_room: its limit lets another message out (null: it has no limit).
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_opens_at(
  p_head_at bigint, p_paused_at bigint, p_has_room boolean, p_rate_at bigint, p_rate_interval bigint,
  p_rate_burst integer
)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when num_nonnulls(p_paused_at) = 0 and p_has_room is not false and p_head_at < 9223372036854775807 then
      greatest(0, p_head_at, fairqueue.fq_rate_allows_at(p_rate_at, p_rate_interval, p_rate_burst))
  end
$$;
