-- fq_next_dequeue_at: the position of a channel in turn order after p_got messages were taken from it, its head being
-- at p_head_at now; null: it has no message.
-- Guarantees: not before its head is due and its rate allows a delivery. The position stays while the turn lasts;
-- afterwards the channel gets a new one. If the channel has due messages but all are locked by others, it is visited
-- again in 10 ms. One expression, which the planner inlines.
-- Locks: none. Errors: none.
-- Source: generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_next_dequeue_at(
  p_old_position bigint,
  p_new_position bigint,
  p_turn_left integer,
  p_got integer,
  p_head_at bigint,
  p_now bigint,
  p_rate_at bigint,
  p_rate_interval bigint,
  p_rate_burst integer
)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when p_head_at is not null then greatest(
      case
        when p_head_at > p_now then p_head_at
        when p_got = 0 then p_new_position + 10000
        when p_got < p_turn_left then p_old_position
        else p_new_position
      end,
      fairqueue.fq_rate_allows_at(
        (case when p_got > 0 then greatest(p_rate_at, p_now) + p_got * p_rate_interval else p_rate_at end)::bigint,
        p_rate_interval, p_rate_burst
      )
    )
  end
$$;
