-- fq_purge_channel: delete the undelivered messages of a channel, in the caller's transaction, or only those that
-- fq_undelivered finds by the arguments that are not null; up to p_limit. Returns how many.
-- Guarantees: messages committed before the call that nobody else has locked are gone; leased messages and those added
-- later stay. The backlog and the head are right with the commit, and a signal tells of the head. Neither dead letters
-- nor history are kept.
-- Locks: the channel's state row: waits for a dequeue, a hearing or a configuration of the channel. Until the commit
-- the channel is not served, and no consumer waits for it. Messages for update skip locked: one that is just being
-- cancelled or replaced is passed by.
-- Index: fq_channel_state_newest_ix, fq_message_ready_ix; those of fq_undelivered; rows by ctid. Errors: 40001; QF001
-- bad state, bad limit; QF007.
create function fairqueue.fq_purge_channel(
  p_queue text, p_channel text, p_key text default null, p_ordering_key text default null, p_kind text default null,
  p_state text default null, p_since bigint default null, p_until bigint default null,
  p_limit bigint default null
)
returns bigint
language plpgsql
security definer
as $$
declare
  v_channel_id bigint;
  v_row tid;
  v_rows tid[];
  v_deleted bigint;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_purge_channel has limit'::text, p_limit, 1::bigint, null::bigint)
  where p_limit is not null;
  select c.id into v_channel_id
  from fairqueue.fq_find_channel(p_queue, p_channel) c;
  if not found then
    return 0;
  end if;
  v_row := fairqueue.fq_lock_state(v_channel_id);

  -- A new statement: it sees which messages a dequeue has leased that this call has waited for.
  if num_nonnulls(p_key, p_ordering_key, p_kind, p_state, p_since, p_until) > 0 then
    v_rows := array(
      select m.ctid
      from fairqueue.fq_message m
      where m.id = any (array(
          select n.message_id
          from fairqueue.fq_undelivered(
            p_queue, p_channel, p_key, p_ordering_key, p_kind, p_state, p_since, p_until, p_limit
          ) n
        ))
        and num_nulls(m.lease_id) = 1
      for update skip locked
    );
  else
    -- Locked messages do not count for p_limit, since fq_erase_channel takes fewer than p_limit for the end.
    v_rows := array(
      select m.ctid
      from fairqueue.fq_message m
      where m.channel_id = v_channel_id
        and m.lease_id is null
      order by m.channel_id, m.dequeue_at, m.id
      limit p_limit
      for update skip locked
    );
  end if;
  delete from fairqueue.fq_message m
  where m.ctid = any (v_rows)
    and num_nulls(m.lease_id) = 1;
  get diagnostics v_deleted = row_count;

  -- The new head is the least message that is left, as somebody has it locked. Messages that are committed later have
  -- signals of their own. A signal tells dequeues of the channel, which may stand before ready_floor.
  with purged as (
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      backlog = s.backlog - v_deleted,
      (head_dequeue_at, head_message_id) = (
        select x.dequeue_at, x.id
        from fairqueue.fq_message x
        where x.channel_id = v_channel_id
          and x.lease_id is null
        order by x.channel_id, x.dequeue_at, x.id
        limit 1
      ),
      -- the hearing of the signal places the channel anew
      ready_tag = null,
      due_at = null
    where s.ctid = v_row
      and s.channel_id = v_channel_id
    returning s.head_dequeue_at, s.head_message_id
  )
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
  select p_queue, v_channel_id, p.head_dequeue_at, p.head_message_id
  from purged p
  where p.head_message_id is not null;
  return v_deleted;
end
$$;
