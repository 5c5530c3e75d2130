-- fq_stop_deliveries: let no dequeue take messages of a queue until the transaction ends, so that what is out can be
-- counted when the queue gets its first limit.
-- Guarantees: a dequeue of a queue with a limit needs the dispatch row, which is locked here. A dequeue of a queue
-- without one needs the state row of a channel. If the queue has no limit yet, these are locked too; a channel that is
-- made meanwhile has no message that a hearing has made ready. Dequeues under way have ended when this returns; a later
-- one reads the limit again when it has a channel locked (fq_lease_for).
-- Locks: as fq_lock_queue; the dispatch row; the state rows of the channels, in the order of names. Waits for dequeues
-- under way, and for configurations of channels.
-- Index: fq_queue_state_newest_ix, fq_channel_pkey; reads the states of the queue. Errors: 40001; QF007.
create function fairqueue.fq_stop_deliveries(p_queue text)
returns void
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_lock_queue(p_queue);
  perform
  from fairqueue.fq_queue_state s
  where s.queue = p_queue
  order by s.queue desc, s.row_version desc
  limit 1
  for no key update;
  if not fairqueue.fq_is_limited(p_queue) then
    perform
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
    order by (select c.name from fairqueue.fq_channel c where c.id = s.channel_id)
    for no key update;
  end if;
end
$$;
