-- fq_head_cost: what the first message of a channel would be charged; null: it has none. p_mean_cost: of its state row.
-- Guarantees: as fq_dequeue would charge it. Locks: none. Index: fq_message_pkey, fq_queue_pkey. Errors: none.
create function fairqueue.fq_head_cost(p_queue text, p_head_message_id bigint, p_mean_cost bigint)
returns bigint
language sql
stable
as $$
  select greatest(
    0,
    coalesce(
      m.cost,
      fairqueue.fq_estimate(
        p_mean_cost, (select q.fair_by = 'seconds' from fairqueue.fq_queue q where q.name = p_queue)::boolean
      )
    )
  )
  from fairqueue.fq_message m
  where m.id = p_head_message_id
$$;
