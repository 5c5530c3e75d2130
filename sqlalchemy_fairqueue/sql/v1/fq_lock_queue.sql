-- fq_lock_queue: lock the row of a queue in fq_queue before verbs of one transaction that lock other rows and then
-- change the queue's settings; a missing row is made.
-- Guarantees: until the transaction ends nobody else changes settings of the queue, even if it had none.
-- Locks: the queue's row, for no key update; waits for another configuration of the same queue. Index: fq_queue_pkey.
-- Errors: QF001 bad name; 40001; QF007.
create function fairqueue.fq_lock_queue(p_queue text)
returns void
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  perform
  from fairqueue.fq_queue q
  where q.name = p_queue
  for no key update;
  if not found then
    -- Without a row there would be nothing to lock, and the first settings of two transactions would meet later.
    insert into fairqueue.fq_queue (name)
    values (p_queue)
    on conflict (name) do nothing;
    perform
    from fairqueue.fq_queue q
    where q.name = p_queue
    for no key update;
  end if;
end
$$;
