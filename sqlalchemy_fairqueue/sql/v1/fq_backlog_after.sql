-- fq_backlog_after: a channel's backlog after p_got messages were taken from it, its head being at p_head_at now; null:
-- it has no message.
-- Guarantees: the count repairs itself: it is 0 if the channel has no message left and the queue has no signal above
-- p_after. p_after null: nobody knows whether there is a signal, and the count is not repaired. One expression, which
-- the planner inlines.
-- Locks: none. Index: as fq_has_signals. Errors: none.
create function fairqueue.fq_backlog_after(
  p_backlog bigint, p_got integer, p_head_at bigint, p_queue text, p_after bigint
)
returns bigint
language sql
stable
as $$
  select case
    when p_head_at is null and p_backlog <> p_got and p_after is not null
      and not fairqueue.fq_has_signals(p_queue, p_after)
    then 0
    else p_backlog - p_got
  end
$$;
