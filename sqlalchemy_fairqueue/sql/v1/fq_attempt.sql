-- fq_attempt: an attempt at a message as fq_record_attempts takes it; null: the queue did not record its history when
-- the attempt began. p_group_id: the nil UUID counts as none.
-- Guarantees: one expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_attempt(
  p_channel_id bigint, p_id bigint, p_attempts integer, p_enqueued_at bigint, p_dequeue_at bigint, p_returned_at bigint,
  p_delivered_at bigint, p_lease_id bigint, p_cost integer, p_group_id uuid
)
returns bigint[]
language sql
immutable parallel safe
as $$
  select case
    when p_delivered_at is not null then
      array[
        p_channel_id, p_id, p_attempts, p_enqueued_at,
        least(p_delivered_at, greatest(p_enqueued_at, p_dequeue_at, p_returned_at)), p_delivered_at, p_lease_id,
        coalesce(p_cost, 1),
        -- The halves of the group's id, 0 without one: with a null in the array, its elements would not be found by
        -- position.
        case
          when p_group_id is null then 0
          else ('x' || left(replace(p_group_id::text, '-', ''), 16))::bit(64)::bigint
        end,
        case
          when p_group_id is null then 0
          else ('x' || right(replace(p_group_id::text, '-', ''), 16))::bit(64)::bigint
        end
      ]
  end
$$;
