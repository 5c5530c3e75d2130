-- fq_turn: where the first ready channel of a queue will stand after one message, see fq_first_ready. p_by_cost: whether
-- messages cost what they name, and not 1.
-- Guarantees: one expression, which the planner inlines. Locks: none. Index: fq_message_pkey. Errors: none.
create function fairqueue.fq_turn(
  p_tag bigint, p_rest bigint, p_weight integer, p_head_message_id bigint, p_by_cost boolean
)
returns bigint
language sql
stable
as $$
  select fairqueue.fq_tag_after(
    p_tag, p_rest,
    (case
      when p_by_cost then
        (
          select m.cost::bigint
          from fairqueue.fq_message m
          where m.id = p_head_message_id
        )
      else 1
    end)::bigint,
    p_weight
  )
$$;
