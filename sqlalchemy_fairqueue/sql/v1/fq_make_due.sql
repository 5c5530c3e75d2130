-- fq_make_due: make a message that is due later due now, in the caller's transaction. Returns 'due'; 'unchanged': it is
-- due already, or held; 'leased'; 'missing'. Only 'due' changes anything. p_notify: wake waiting consumers (not in a
-- two-phase transaction).
-- Guarantees: the same message with the same attempts, at the place in its channel that it would have if it had been
-- enqueued without a delay; it is ready since now.
-- Locks: the message; waits for who settles, replaces, cancels or delivers it. Index: fq_message_pkey, fq_channel_pkey,
-- fq_channel_state_newest_ix. Errors: 40001; QF007.
create function fairqueue.fq_make_due(p_queue text, p_message_id bigint, p_notify boolean)
returns text
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_channel_id bigint;
  v_lease_id bigint;
  v_at bigint;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_lock_messages(p_queue, array[p_message_id]::bigint[]);
  select m.channel_id, m.lease_id, m.dequeue_at into v_channel_id, v_lease_id, v_at
  from fairqueue.fq_message m
  where m.id = p_message_id
    and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue;
  if not found then
    return 'missing';
  end if;
  if v_lease_id is not null then
    return 'leased';
  elsif v_at <= v_now or v_at = 9223372036854775807 then
    return 'unchanged';
  end if;
  update fairqueue.fq_message m
  set dequeue_at = (
      select p.dequeue_at
      from fairqueue.fq_position_in(m.channel_id, m.enqueued_at, m.priority) p
    ),
    returned_at = v_now
  where m.id = p_message_id
  returning m.dequeue_at into v_at;
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added)
  values (p_queue, v_channel_id, v_at, p_message_id, 0);
  if p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
  return 'due';
end
$$;
