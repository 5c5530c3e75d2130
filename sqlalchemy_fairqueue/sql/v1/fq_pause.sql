-- fq_pause: stop the deliveries of a queue, or of one channel, in the caller's transaction. False: it is paused
-- already. p_new: a missing channel is made, paused; otherwise its name is refused.
-- Guarantees: no dequeue that begins after the commit takes a message of it. Leased messages stay leased and may be
-- completed; new ones are added; signals are heard. A paused channel keeps its limits and its start tag. A pause of a
-- queue and the pauses of its channels do not change each other.
-- Locks: queue: its row, as configuration does; a dequeue under way goes on. Channel: its state row, which waits for a
-- dequeue that serves it (short) or for its configuration; until the commit dequeues pass the channel by.
-- Index: fq_queue_pkey, fq_channel_state_newest_ix. Errors: QF001 bad name; QF008 no such channel; 40001; QF007.
create function fairqueue.fq_pause(p_queue text, p_channel text default null, p_new boolean default false)
returns boolean
language plpgsql
security definer
as $$
declare
  v_channel_id bigint;
  v_row tid;
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  if p_channel is null then
    perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
    insert into fairqueue.fq_queue as q (name, paused_at)
    values (p_queue, fairqueue.fq_now())
    on conflict (name) do update
    set paused_at = excluded.paused_at
    where q.paused_at is null;
    return found;
  end if;

  if p_new then
    perform fairqueue.fq_make_channels(p_queue, array[p_channel]::text[], null::jsonb);
  else
    perform fairqueue.fq_check_names('{queue,channel}'::text[], array[p_queue, p_channel]::text[]);
  end if;
  select c.id into v_channel_id
  from fairqueue.fq_find_channel(p_queue, p_channel) c;
  if not found then
    raise exception 'queue % has no channel %', p_queue, p_channel
      using errcode = 'QF008',
        hint = 'correct the name, or give p_new => true to make the channel';
  end if;
  v_row := fairqueue.fq_lock_state(v_channel_id);
  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    paused_at = fairqueue.fq_now(),
    ready_tag = null,
    due_at = null
  where s.ctid = v_row
    and s.channel_id = v_channel_id
    and s.paused_at is null;
  return found;
end
$$;
