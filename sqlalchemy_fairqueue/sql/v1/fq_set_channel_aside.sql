-- fq_set_channel_aside: try what a dequeue of p_limit messages does with a ready channel. A channel whose state cannot be
-- updated is paused; messages with which it fails are set aside, up to the first one that pauses the channel. Returns
-- rows as fq_set_aside.
-- Guarantees: a good message is left as it is. If somebody else has the channel locked, nothing is done: a dequeue
-- passes it by as well.
-- Locks: the state row for no key update, messages for update, all skip locked: it waits for none.
-- Index: fq_channel_state_newest_ix, fq_message_ready_ix. Errors: none of the rows'.
create function fairqueue.fq_set_channel_aside(p_queue text, p_channel_id bigint, p_limit integer, p_now bigint)
returns table (message_id bigint, outcome text, reason text)
language plpgsql
as $$
declare
  v_rows tid[];
  v_ids bigint[];
  v_row tid;
begin
  perform
  from fairqueue.fq_channel_state s
  where s.channel_id = p_channel_id
  for no key update skip locked;
  if not found then
    return;
  end if;
  begin
    perform fairqueue.fq_charge(
      p_queue, array[s.ctid]::tid[], array[1]::integer[], array[1]::integer[], array[1]::bigint[],
      array[p_now]::bigint[], array[s.head_message_id]::bigint[], true::boolean, p_now,
      null::fairqueue.fq_queue_state, true::boolean
    )
    from fairqueue.fq_channel_state s
    where s.channel_id = p_channel_id;
    raise exception using errcode = 'QF099', message = 'it is undone';
  exception
    when sqlstate 'QF099' then
      null;
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      outcome := 'paused';
      reason := format('its state cannot be updated: %s', left(sqlerrm, 1000));
      update fairqueue.fq_channel_state s
      set row_version = least(s.row_version, 4611686018427387903) + 1,
        paused_at = p_now,
        problem = reason,
        ready_tag = null,
        due_at = null
      where s.channel_id = p_channel_id;
      return next;
      return;
  end;
  -- A dequeue reaches what stands behind messages that wait for others of their ordering keys.
  begin
    perform fairqueue.fq_hold_back(
      p_queue, array[p_channel_id]::bigint[], array['-9223372036854775808']::bigint[],
      array['-9223372036854775808']::bigint[], array[1]::integer[], 100000::integer, p_now
    );
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      null;
  end;
  -- One more than a dequeue takes, which looks at the size of the next message, too.
  select array_agg(l.row), array_agg(l.id) into v_rows, v_ids
  from (
    select x.ctid as row, x.id
    from fairqueue.fq_message x
    where x.channel_id = p_channel_id
      and x.lease_id is null
      and x.dequeue_at <= p_now
    order by x.channel_id, x.dequeue_at, x.id
    limit p_limit + 1
    for update skip locked
  ) l;
  if fairqueue.fq_try_messages(v_rows, v_ids) is null then
    return;
  end if;
  for v_row, message_id in
    select u.row, u.id
    from unnest(v_rows, v_ids) u(row, id)
  loop
    reason := fairqueue.fq_try_messages(array[v_row]::tid[], array[message_id]::bigint[]);
    if reason is not null then
      reason := format('set aside, for it cannot be delivered: %s', left(reason, 1000));
      outcome := fairqueue.fq_set_message_aside(p_queue, message_id, v_row, reason);
      return next;
      exit when outcome = 'paused';
    end if;
  end loop;
end
$$;
