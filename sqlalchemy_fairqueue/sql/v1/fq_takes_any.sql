-- fq_takes_any: whether an insert alone may add messages without a key to a channel: it has no max_backlog, no
-- max_payload_bytes and no mark to be forgotten, and raises no priorities with time. Otherwise fq_add_message is
-- needed. p_prioritised: messages may have priorities, and the caller's insert ignores priority_aging. fq_enqueue passes
-- false, since its insert reads it.
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
