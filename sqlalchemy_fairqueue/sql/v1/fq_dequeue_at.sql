-- fq_dequeue_at: when a message may be dequeued that is enqueued now: by its priority below zero, else at p_at or after
-- p_delay, and not before now.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_dequeue_at(p_now bigint, p_delay bigint, p_at bigint, p_priority integer)
returns bigint
language sql
immutable parallel safe
as $$
  select case
    when p_priority is not null then -p_priority::bigint
    else greatest(p_at, p_now + coalesce(p_delay, 0))
  end
$$;
