-- fq_position_in: what fq_position says in a channel, whose policy it looks up.
-- Guarantees: one query, which the planner inlines, since it returns a table. Locks: none.
-- Index: fq_channel_state_newest_ix. Errors: none.
create function fairqueue.fq_position_in(p_channel_id bigint, p_ready_at bigint, p_priority integer)
returns table (dequeue_at bigint)
language sql
stable
as $$
  select fairqueue.fq_position(
    p_ready_at, p_priority, (select s.priority_aging from fairqueue.fq_newest_state(p_channel_id) s)::bigint
  )
$$;
