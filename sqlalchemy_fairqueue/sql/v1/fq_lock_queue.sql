-- fq_lock_queue: lock the row of a queue in fq_queue before verbs of one transaction that lock other rows and then
-- change the queue's settings; a missing row is made. p_deliveries: also let no dequeue take messages of the queue until
-- the transaction ends, so that what is out can be counted when the queue gets its first limit.
-- Guarantees: nobody else changes settings of the queue, even if it had none. A dequeue of a queue with a limit needs
-- the dispatch row; one of a queue without needs the state row of a channel. If the queue has no limit yet, these are
-- locked too. Dequeues under way have ended then; a later one reads the limit again when it has a channel (fq_lease_for).
-- Locks: the queue's row, then the dispatch row and the state rows in the order of names, for no key update; waits for
-- another configuration, and with p_deliveries for dequeues under way and configurations of channels.
-- Index: fq_queue_pkey, fq_queue_state_newest_ix, fq_channel_pkey; reads the states of the queue. Errors: QF001 bad
-- name; 40001; QF007.
create function fairqueue.fq_lock_queue(p_queue text, p_deliveries boolean)
returns void
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  -- If it had no row, the first settings of two transactions would meet later.
  insert into fairqueue.fq_queue as q (name)
  values (p_queue)
  on conflict (name) do update
  set name = q.name;
  if not p_deliveries then
    return;
  end if;
  perform
  from fairqueue.fq_queue_state s
  where s.queue = p_queue
  order by s.queue desc, s.row_version desc
  limit 1
  for no key update;
  if not fairqueue.fq_is_limited(p_queue) then
    -- A channel that is made meanwhile has no message that a hearing has made ready.
    perform
    from fairqueue.fq_channel_state s
    where s.queue = p_queue
    order by (select c.name from fairqueue.fq_channel c where c.id = s.channel_id)
    for no key update;
  end if;
end
$$;
