-- fq_next_dequeue_at: where a channel stands after p_got messages were taken from it, its head being at p_head_at now
-- (null: it has none), its tag at p_tag, its rate at p_rate_at. p_has_room: whether its limit lets a further one out;
-- null: it has no limit.
-- Guarantees: it stays in the ready order if it has something to give, and comes back to it when its head is due and
-- its rate allows a message; in 10 ms where others have all of its messages locked. One expression, which the planner
-- inlines.
-- Locks: none. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_next_dequeue_at(
  p_tag bigint,
  p_got integer,
  p_head_at bigint,
  p_now bigint,
  p_rate_at bigint,
  p_rate_interval bigint,
  p_rate_burst integer,
  p_has_room boolean
)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when p_head_at is null then null
    when p_got > 0 and p_has_room is not false
      and greatest(p_head_at, fairqueue.fq_rate_allows_at(p_rate_at, p_rate_interval, p_rate_burst)) <= p_now
    then p_tag
    else
      greatest(
        0,
        case when p_got = 0 and p_head_at <= p_now then p_now + 10000 else p_head_at end,
        fairqueue.fq_rate_allows_at(p_rate_at, p_rate_interval, p_rate_burst)
      )
  end
$$;
