-- fq_resume: let a paused queue, or a paused channel, be delivered again, in the caller's transaction. False: it was
-- not paused. p_notify: wake waiting consumers (not in a two-phase transaction).
-- Guarantees: takes effect on the next dequeue after the commit: a signal lets the next hearing find the channel,
-- however long it was paused. The channel is placed like one that was idle: ready when its first message is due and its
-- rate allows it.
-- Locks: as fq_pause. Index: fq_queue_pkey, fq_channel_state_newest_ix. Errors: QF008 no such channel; 40001; QF007.
create function fairqueue.fq_resume(p_queue text, p_channel text default null, p_notify boolean default true)
returns boolean
language plpgsql
security definer
as $$
declare
  v_channel_id bigint;
  v_row tid;
  v_resumed boolean;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  if p_channel is null then
    update fairqueue.fq_queue q
    set paused_at = null
    where q.name = p_queue
      and q.paused_at is not null;
    v_resumed := found;
  else
    select c.id into v_channel_id
    from fairqueue.fq_find_channel(p_queue, p_channel) c;
    if not found then
      raise exception 'queue % has no channel %', left(p_queue, 512), left(p_channel, 512)
        using errcode = 'QF008',
          hint = 'correct the name';
    end if;
    v_row := fairqueue.fq_lock_state(v_channel_id);
    with resumed as (
      update fairqueue.fq_channel_state s
      set row_version = s.row_version + 1,
        paused_at = null,
        problem = null
      where s.ctid = v_row
        and s.channel_id = v_channel_id
        and s.paused_at is not null
      returning s.head_dequeue_at, s.head_message_id
    ),
    signalled as (
      insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
      select p_queue, v_channel_id, r.head_dequeue_at, r.head_message_id
      from resumed r
      where r.head_message_id is not null
    )
    select count(*) > 0 into v_resumed
    from resumed r;
  end if;
  if v_resumed and p_notify then
    perform fairqueue.fq_wake(p_queue);
  end if;
  return v_resumed;
end
$$;
