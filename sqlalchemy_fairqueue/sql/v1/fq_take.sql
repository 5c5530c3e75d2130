-- fq_take: lease the messages that fq_choose has chosen and locked (p_chosen), and charge their channels, as fq_charge.
-- p_settings, p_dispatcher: of the queue; p_limited_queue: whether it has a limit; p_hearer: as fq_charge.
-- Guarantees: a row a message, in their order. Locks: only rows that the caller holds. Index: rows by ctid,
-- fq_channel_pkey. Errors: none.
create function fairqueue.fq_take(
  p_queue text, p_settings fairqueue.fq_queue, p_dispatcher fairqueue.fq_queue_state, p_chosen record,
  p_limited_queue boolean, p_lease_id bigint, p_hearer boolean, p_now bigint
)
returns table (
  message_id bigint, row_id tid, channel_id bigint, channel text, kind text, content bytea, headers jsonb,
  enqueued_at bigint, attempt integer, max_attempts integer, deliveries integer
)
language plpgsql
volatile
as $$
#variable_conflict use_column
begin
  return query
  update fairqueue.fq_message m
  set lease_id = p_lease_id,
    attempts = m.attempts + 1,
    deliveries = m.deliveries + 1,
    slots = case when p_chosen.limited[u.ord] then 1 else 0 end + case when p_limited_queue then 2 else 0 end,
    delivered_at = case when p_settings.history then p_now end
  from unnest(p_chosen.rows, p_chosen.ords) u(row, ord)
  where m.ctid = u.row
    and num_nulls(m.lease_id) = 1
  returning m.id, m.ctid, m.channel_id, (select n.name from fairqueue.fq_channel n where n.id = m.channel_id), m.kind,
    m.content, m.headers, m.enqueued_at, m.attempts, m.max_attempts, m.deliveries;
  perform fairqueue.fq_charge(
    p_queue, p_chosen.states::tid[], p_chosen.gots::integer[], p_chosen.charges::bigint[],
    p_chosen.next_heads_at::bigint[], p_chosen.next_head_ids::bigint[], p_now, p_dispatcher, p_hearer
  );
end
$$;
