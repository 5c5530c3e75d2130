-- fq_set_message_aside: take a message that the caller has locked out of the way of dequeues. It becomes a dead letter
-- with p_reason ('dead') or, if no dead letter can hold it, goes back into its channel, which is paused with p_reason
-- as its problem ('paused'). Null: no dead letter can hold it, somebody has its channel's state row locked, and nothing
-- is changed.
-- Guarantees: a signal frees the slots that the message held, and corrects its channel's backlog.
-- Locks: the newest version of the channel's state row, for no key update, skip locked: it waits for none.
-- Index: fq_channel_state_newest_ix; the message by ctid. Errors: none of the message's.
create function fairqueue.fq_set_message_aside(p_queue text, p_id bigint, p_row tid, p_reason text)
returns text
language plpgsql
as $$
declare
  v_message record;
begin
  select num_nulls(m.lease_id) = 1 as is_undelivered, m.channel_id, m.slots, m.dequeue_at,
    fairqueue.fq_charged(m.charged, m.cost::integer) as cost
  into v_message
  from fairqueue.fq_message m
  where m.ctid = p_row
    and m.id is not distinct from p_id;
  begin
    perform fairqueue.fq_bury_messages(
      p_queue, array[p_id]::bigint[], array[p_row]::tid[], array[p_reason]::text[], null::text[]
    );
    -- Read what a list of dead letters reads of it.
    perform octet_length(convert_to(d.headers::text, 'UTF8'))
    from fairqueue.fq_dead_letter d
    where d.message_id = p_id;
    if v_message.is_undelivered then
      insert into fairqueue.fq_signal (queue, channel_id, added, bounded)
      values (p_queue, v_message.channel_id, -1, true);
    end if;
    return 'dead';
  exception
    when data_exception or integrity_constraint_violation or program_limit_exceeded or internal_error then
      null;
  end;

  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    paused_at = coalesce(s.paused_at, fairqueue.fq_now()),
    problem = format('message %s is %s', p_id, p_reason),
    ready_tag = null,
    due_at = null
  where s.ctid = (
    select n.ctid
    from fairqueue.fq_channel_state n
    where n.channel_id = v_message.channel_id
    order by n.channel_id desc, n.row_version desc
    limit 1
    for no key update skip locked
  );
  if not found then
    return null;
  end if;
  if not v_message.is_undelivered then
    -- Its attempt is not recorded: the recording may be what failed.
    update fairqueue.fq_message m
    set lease_id = null,
      slots = 0,
      delivered_at = null
    where m.ctid = p_row
      and m.id is not distinct from p_id;
    insert into fairqueue.fq_signal (
      queue, channel_id, dequeue_at, message_id, freed, queue_freed, freed_cost, queue_freed_cost, added, bounded
    )
    values (
      p_queue, v_message.channel_id, v_message.dequeue_at, p_id, v_message.slots & 1, v_message.slots >> 1 & 1,
      (v_message.slots & 1) * v_message.cost, (v_message.slots >> 1 & 1) * v_message.cost, 1, true
    );
  end if;
  return 'paused';
end
$$;
