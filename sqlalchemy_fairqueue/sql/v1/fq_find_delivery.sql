-- fq_find_delivery: the message that a delivery holds, by its token, none of which is null; no row: the delivery is not
-- its holder's any more, or of another queue.
-- Guarantees: one query, which the planner inlines. Locks: none. Index: fq_message_pkey. Errors: none.
create function fairqueue.fq_find_delivery(p_queue text, p_id bigint, p_lease_id bigint, p_deliveries integer)
returns setof fairqueue.fq_message
language sql
stable
as $$
  select m.*
  from fairqueue.fq_message m
  where m.id = p_id
    and num_nonnulls(p_lease_id) = 1
    and m.lease_id is not distinct from p_lease_id
    and m.deliveries = p_deliveries
    and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
  limit 1
$$;
