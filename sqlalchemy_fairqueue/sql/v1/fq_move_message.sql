-- fq_move_message: put an undelivered message into another channel of its queue, in the caller's transaction. Returns
-- 'moved'; 'unchanged': it is in that channel; 'leased'; 'duplicate': another message of that channel has its key;
-- 'missing'. Only 'moved' changes anything, besides that a missing channel is made. p_policy: of a new channel, if the
-- queue has no defaults. p_notify: wake waiting consumers (not in a two-phase transaction).
-- Guarantees: the same message with the same id, key, attempts and due time; if it is due and has a priority, it stands
-- by its priority as if it became due now. A period of its key stays in the old channel. max_backlog does not count.
-- Locks: in the order of fq_enqueue: the first use of a channel and the key in it, which wait for a transaction that
-- adds the same one (until the message is locked, a placeholder has the key); then the message, which waits for who
-- settles, replaces, cancels or delivers it.
-- Index: fq_message_pkey, fq_message_key, fq_channel_queue_name_key. Errors: QF001 a bad name; 40001; QF007.
create function fairqueue.fq_move_message(
  p_queue text, p_message_id bigint, p_channel text, p_policy jsonb, p_notify boolean
)
returns text
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_key text;
  v_channel_id bigint;
  v_holder bigint;
  v_held fairqueue.fq_message;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, array[p_channel]::text[]);
  loop
    select m.key into v_key
    from fairqueue.fq_message m
    where m.id = p_message_id
      and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue;
    if not found then
      return 'missing';
    end if;
    select (r.state).channel_id into v_channel_id
    from fairqueue.fq_channel_room(p_queue, p_channel, p_policy) r;
    if v_key is not null then
      insert into fairqueue.fq_message (channel_id, kind, content, dequeue_at, enqueued_at, key, max_attempts)
      values (v_channel_id, 'default', ''::bytea, v_now, v_now, v_key, 1)
      on conflict (channel_id, key) where key is not null do nothing
      returning id into v_holder;
      if v_holder is null then
        select m.id into v_holder
        from fairqueue.fq_message m
        where m.channel_id = v_channel_id
          and m.key = v_key;
        -- The message that had the key has just ended: try again.
        continue when not found;
        return case when v_holder = p_message_id then 'unchanged' else 'duplicate' end;
      end if;
    end if;
    select m.* into v_held
    from fairqueue.fq_message m
    where m.id = p_message_id
    for update;
    if v_holder is not null then
      delete from fairqueue.fq_message m
      where m.id = v_holder;
      v_holder := null;
    end if;
    -- The message has ended, or another move has put it elsewhere: try again.
    continue when v_held.id is null;
    if v_held.lease_id is not null then
      return 'leased';
    end if;
    if v_held.channel_id = v_channel_id then
      return 'unchanged';
    end if;
    -- Otherwise another call has given it a key or taken it, or moved it, and the wrong key is locked.
    exit when v_held.key is not distinct from v_key;
  end loop;

  if v_held.key_outlives then
    -- The message does not end, so the trigger must not begin the period of its key.
    update fairqueue.fq_message m
    set key_outlives = null
    where m.id = p_message_id;
  end if;
  delete from fairqueue.fq_message m
  where m.id = p_message_id;
  insert into fairqueue.fq_signal (queue, channel_id, added, bounded)
  values (p_queue, v_held.channel_id, -1, true);
  if v_held.dequeue_at = 9223372036854775807 then
    -- It waited for others of its ordering key, which stay in the old channel.
    v_held.dequeue_at := v_now;
  end if;
  if v_held.priority is not null and v_held.dequeue_at <= v_now then
    select p.dequeue_at into v_held.dequeue_at
    from fairqueue.fq_position_in(v_channel_id, v_now, v_held.priority) p;
  end if;
  insert into fairqueue.fq_message (
    id, channel_id, kind, content, headers, dequeue_at, enqueued_at, key, attempts, max_attempts, deliveries,
    delivered_at, returned_at, error, priority, cost, group_id, key_outlives, ordering_key
  )
  overriding system value
  values (
    v_held.id, v_channel_id, v_held.kind, v_held.content, v_held.headers, v_held.dequeue_at, v_held.enqueued_at,
    v_held.key, v_held.attempts, v_held.max_attempts, v_held.deliveries, v_held.delivered_at,
    v_held.returned_at, v_held.error, v_held.priority, v_held.cost, v_held.group_id,
    v_held.key_outlives, v_held.ordering_key
  );
  if v_held.group_id is not null then
    -- A moved message stays a member of its group: take back the note of its end.
    delete from fairqueue.fq_group_note n
    where n.xid = pg_current_xact_id()
      and n.id = v_held.id
      and n.group_id = v_held.group_id;
  end if;
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added, bounded)
  values (p_queue, v_channel_id, v_held.dequeue_at, v_held.id, 1, true);
  if p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
  return 'moved';
end
$$;
