-- fq_rival_weight: the weight of a channel if it competes with others, else null: it has p_messages out, or something
-- ready (p_due: a signal says so) and is neither paused nor at its limit, of which signals will free p_freed slots, nor
-- held back by its rate.
-- Guarantees: one query, which the planner inlines. Locks: none. Index: fq_channel_state_newest_ix. Errors: none.
create function fairqueue.fq_rival_weight(
  p_channel_id bigint, p_messages bigint, p_due boolean, p_freed bigint, p_now bigint
)
returns table (weight integer)
language sql
stable
as $$
  select case
    when p_messages > 0 then s.weight
    when s.paused_at is null
      and (s.max_concurrency is null or s.current_concurrency - p_freed < s.max_concurrency)
      and (p_due or s.head_dequeue_at <= p_now)
      and (fairqueue.fq_rate_allows_at(s.rate_at, s.rate_interval, s.rate_burst) <= p_now) is not false
    then s.weight
  end
  from fairqueue.fq_channel_state s
  where s.channel_id = p_channel_id
  order by s.channel_id desc, s.row_version desc
  limit 1
$$;
