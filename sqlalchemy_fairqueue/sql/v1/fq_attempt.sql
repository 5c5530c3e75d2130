-- fq_attempt: the attempt at a leased message as fq_record_attempts takes it; null: the queue did not record its history
-- when the attempt began. A group whose id is the nil UUID counts as none.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_attempt(p_message fairqueue.fq_message)
returns bigint[]
language sql
immutable parallel safe
as $$
  select case
    when p_message.delivered_at is not null then
      array[
        p_message.channel_id, p_message.id, p_message.attempts, p_message.enqueued_at,
        least(
          p_message.delivered_at, greatest(p_message.enqueued_at, p_message.dequeue_at, p_message.returned_at)
        ),
        p_message.delivered_at, p_message.lease_id, coalesce(p_message.charged, p_message.cost, 1),
        -- The halves of the group's id, 0 without one: with a null in the array, its elements would not be found by
        -- position.
        coalesce(('x' || left(replace(p_message.group_id::text, '-', ''), 16))::bit(64)::bigint, 0),
        coalesce(('x' || right(replace(p_message.group_id::text, '-', ''), 16))::bit(64)::bigint, 0)
      ]
  end
$$;
