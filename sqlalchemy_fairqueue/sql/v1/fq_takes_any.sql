-- fq_takes_any: whether messages without a key may be added to a channel by an insert alone: its policy has no bound,
-- raises no priorities with time, and it is not about to be forgotten. fq_add_message does what is needed otherwise.
-- p_prioritised: whether some have priorities that the insert does not weigh.
-- Guarantees: one expression, which the planner inlines. Its callers pin the search_path.
-- Locks: none. Index: none. Errors: none.
create function fairqueue.fq_takes_any(p_state fairqueue.fq_channel_state, p_prioritised boolean)
returns boolean
language sql
immutable parallel safe
as $$
  select p_state.max_backlog is null and p_state.max_payload_bytes is null and p_state.forget_xid is null
    and (p_state.priority_aging is null or not p_prioritised)
$$;
