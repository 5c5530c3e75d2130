-- fq_messages_ahead: how many messages come before a message in its channel, counted up to p_most. Null: the queue has
-- no such undelivered message.
-- Guarantees: one snapshot. Cost: the messages that are counted. Locks: none.
-- Index: fq_message_pkey, fq_channel_pkey, fq_message_ready_ix. Errors: QF001 bad bound; QF007.
create function fairqueue.fq_messages_ahead(p_queue text, p_message_id bigint, p_most integer)
returns integer
language plpgsql
stable
security definer
set plan_cache_mode = force_custom_plan
as $$
declare
  v_channel_id bigint;
  v_at bigint;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_messages_ahead has most'::text, p_most::bigint, 1::bigint, null::bigint);
  select m.channel_id, m.dequeue_at into v_channel_id, v_at
  from fairqueue.fq_message m
  join fairqueue.fq_channel c on c.id = m.channel_id
  where m.id = p_message_id
    and m.lease_id is null
    and c.queue = p_queue;
  if not found then
    return null;
  end if;
  return (
    select count(*)
    from (
      select
      from fairqueue.fq_message m
      where m.channel_id = v_channel_id
        and m.lease_id is null
        and (m.dequeue_at, m.id) < (v_at, p_message_id)
      limit p_most
    ) b
  );
end
$$;
