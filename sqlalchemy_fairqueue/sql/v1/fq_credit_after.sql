-- fq_credit_after: what is left of a channel's turn once p_got messages were taken in it and, p_weight each, in the
-- turns that followed it.
-- Guarantees: 0 when the turn is over: it ends when the channel has no message that is due. One expression, which the
-- planner inlines.
-- Locks: none. Errors: none.
-- Source: deficit round robin (Shreedhar, Varghese 1995).
create function fairqueue.fq_credit_after(
  p_weight integer, p_turn_left integer, p_got integer, p_head_at bigint, p_now bigint
)
returns integer
language sql
immutable parallel safe
as $$
  select case
    when p_head_at is null or p_head_at > p_now then 0
    when p_got < p_turn_left then p_turn_left - p_got
    else (p_weight - (p_got - p_turn_left) % p_weight) % p_weight
  end
$$;
