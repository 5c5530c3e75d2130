-- fq_backlog_after: a channel's backlog after p_got messages were taken from it. p_head_at: its head now (null: it has
-- no message); p_dispatcher: the state of the queue.
-- Guarantees: the count repairs itself: it is 0 if the channel has no message left and the queue has no unheard signal.
-- One expression, which the planner inlines.
-- Locks: none. Index: as fq_has_signals. Errors: none.
create function fairqueue.fq_backlog_after(
  p_backlog bigint, p_got integer, p_head_at bigint, p_queue text, p_dispatcher fairqueue.fq_queue_state
)
returns bigint
language sql
stable
as $$
  select case
    when p_head_at is null and p_backlog <> p_got
      and not fairqueue.fq_has_signals(p_queue, p_dispatcher.heard_below, p_dispatcher.heard_open::xid8[])
    then 0
    else p_backlog - p_got
  end
$$;
