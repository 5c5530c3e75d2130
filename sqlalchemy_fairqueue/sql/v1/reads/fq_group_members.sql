-- fq_group_members: up to p_limit members of a group of a queue that have not ended, in no order, each with its state:
-- leased, scheduled, held or ready.
-- Guarantees: one snapshot. Cost: the rows. Locks: none. Index: fq_group_pkey, fq_message_group_ix, fq_channel_pkey,
-- those of fq_message_state. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_group_members(p_queue text, p_group_id uuid, p_limit integer)
returns table (message_id bigint, channel text, state text)
language plpgsql
stable
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_group_members has limit'::text, p_limit::bigint, 1::bigint, 100000::bigint);
  return query
  select m.id, c.name, fairqueue.fq_message_state(m.id, m.lease_id, m.dequeue_at, v_now)
  from fairqueue.fq_group g
  join fairqueue.fq_message m on m.group_id = g.group_id
  join fairqueue.fq_channel c on c.id = m.channel_id
  where g.group_id = p_group_id
    and g.queue = p_queue
  limit p_limit;
end
$$;
