-- fq_turn: where the first ready channel of a queue will stand after one message, see fq_first_ready. p_by_cost: whether
-- messages cost what they name, and not 1.
-- Guarantees: as of the statement that calls it. Locks: none. Index: fq_message_pkey. Errors: none.
create function fairqueue.fq_turn(
  p_tag bigint, p_rest bigint, p_weight integer, p_head_message_id bigint, p_by_cost boolean
)
returns bigint
language plpgsql
volatile
as $$
declare
  v_cost bigint := 1;
begin
  if p_by_cost then
    select m.cost into v_cost
    from fairqueue.fq_message m
    where m.id = p_head_message_id;
  end if;
  return fairqueue.fq_tag_after(p_tag, p_rest, v_cost, p_weight);
end
$$;
