-- fq_pause: stop the deliveries of a queue, or of one channel, or go on with them (p_paused false), in the caller's
-- transaction. False: it is so already. p_new: a missing channel is made, paused; otherwise its name is refused.
-- p_notify: wake waiting consumers when deliveries go on (not in a two-phase transaction).
-- Guarantees: no dequeue that begins after the commit takes a message of what is paused. Leased messages stay leased
-- and may be completed; new ones are added; signals are heard. A paused channel keeps its limits and its start tag, and
-- is placed like one that was idle afterwards, by a signal. Pauses of a queue and of its channels do not change each
-- other.
-- Locks: queue: its row, as configuration does; a dequeue under way goes on. Channel: its state row, which waits for a
-- dequeue that serves it (short) or for its configuration; until the commit dequeues pass the channel by.
-- Index: fq_queue_pkey, fq_channel_state_newest_ix. Errors: QF001 bad name; QF008 no such channel; 40001; QF007.
create function fairqueue.fq_pause(
  p_queue text, p_channel text default null, p_paused boolean default true, p_new boolean default false,
  p_notify boolean default true
)
returns boolean
language plpgsql
security definer
as $$
declare
  v_channel_id bigint;
  v_row tid;
  v_head record;
  v_changed boolean;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  if p_channel is null and p_paused then
    insert into fairqueue.fq_queue as q (name, paused_at)
    values (p_queue, fairqueue.fq_now())
    on conflict (name) do update
    set paused_at = excluded.paused_at
    where q.paused_at is null;
    return found;
  elsif p_channel is null then
    update fairqueue.fq_queue q
    set paused_at = null
    where q.name = p_queue
      and q.paused_at is not null;
    v_changed := found;
  else
    perform fairqueue.fq_check_names('{channel}'::text[], array[p_channel]::text[]);
    if p_new then
      perform fairqueue.fq_make_channels(p_queue, array[p_channel]::text[], null::jsonb);
    end if;
    select c.id into v_channel_id
    from fairqueue.fq_find_channel(p_queue, p_channel) c;
    if not found then
      raise exception 'queue % has no channel %', p_queue, p_channel
        using errcode = 'QF008', hint = 'correct the name, or give p_new => true to make the channel';
    end if;
    v_row := fairqueue.fq_lock_state(v_channel_id);
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      paused_at = case when p_paused then fairqueue.fq_now() end,
      problem = case when p_paused then s.problem end,
      ready_tag = null,
      due_at = null
    where s.ctid = v_row
      and s.channel_id = v_channel_id
      and (s.paused_at is null) = p_paused
    returning s.head_dequeue_at, s.head_message_id into v_head;
    v_changed := found;
    insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
    select p_queue, v_channel_id, v_head.head_dequeue_at, v_head.head_message_id
    where v_head.head_message_id is not null
      and not p_paused;
  end if;
  perform fairqueue.fq_wake(p_queue)
  where v_changed and p_notify and not p_paused;
  return v_changed;
end
$$;
