-- fq_remove_schedule: remove a schedule of a channel, if there is one, in the caller's transaction.
-- Guarantees: after the commit no slot of it is run. Messages that it enqueued stay; records of its slots stay for a
-- week.
-- Locks: the schedule's row, which waits for a transaction that has it (a worker that runs a slot, shortly).
-- Index: fq_schedule_name_key. Errors: 40001; QF007.
create function fairqueue.fq_remove_schedule(p_queue text, p_channel text, p_name text)
returns void
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['producer', 'operator']::text[], p_queue, array[p_channel]::text[]);
  delete from fairqueue.fq_schedule s
  where s.queue = p_queue
    and s.channel = p_channel
    and s.name = p_name;
end
$$;
