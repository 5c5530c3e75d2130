-- fq_busy_channels: ids of the channels of a queue that are not idle, each once: those with a message that the
-- dispatcher knows of, with a leased message, or with a signal that nobody has heard.
-- Cost: one index entry a channel with messages, and what the queue has of leased messages and signals not heard. Idle
-- channels are not read, but for the versions of their state that an old snapshot keeps, one a turn since then.
-- Locks: none. Index: fq_channel_state_ready_ix, and fq_channel_state_held_back_ix for channels that are paused or at
-- their limit; fq_signal_pkey, fq_lease_expires_ix, fq_message_lease_ix. Errors: none.
create function fairqueue.fq_busy_channels(p_queue text)
returns setof bigint
language plpgsql
stable
as $$
begin
  return query
  select s.channel_id
  from fairqueue.fq_channel_state s
  where s.queue = p_queue
    and s.ready_tag is not null
  union
  select s.channel_id
  from fairqueue.fq_channel_state s
  where s.queue = p_queue
    and s.due_at is not null
  union
  select s.channel_id
  from fairqueue.fq_channel_state s
  where s.queue = p_queue
    and s.head_message_id is not null
    and s.ready_tag is null
    and s.due_at is null
  union
  select g.channel_id
  from fairqueue.fq_signal g
  where g.queue = p_queue
  union
  select m.channel_id
  from fairqueue.fq_lease e
  join fairqueue.fq_message m on m.lease_id = e.id
  where e.queue = p_queue;
end
$$;
