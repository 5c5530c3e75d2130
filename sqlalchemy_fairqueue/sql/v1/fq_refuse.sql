-- fq_refuse: fail the transaction of an enqueue or a settlement, because of an outcome that it must not commit with:
-- for callers that send the statement and COMMIT together, and so cannot look at the outcome in between.
-- Guarantees: it never returns. The error's detail is what fq_refusal tells. Locks: none. Index: as fq_refusal.
-- Errors: QF010; as fq_refusal.
create function fairqueue.fq_refuse(
  p_outcome text, p_queue text, p_channel text, p_ordinal integer, p_message_ids bigint[]
)
returns text
language plpgsql
security definer
as $$
declare
  v_detail jsonb := fairqueue.fq_refusal(p_outcome, p_queue, p_channel, p_ordinal, p_message_ids);
begin
  raise exception 'the transaction cannot be committed, an outcome is %', quote_literal(p_outcome)
    using errcode = 'QF010', detail = v_detail::text, hint = 'roll back';
end
$$;
