-- fq_open_queue: make, for a delivery, the dispatch row of a queue and the epoch of the server, if they are missing.
-- False: another transaction that makes them, or changes the queue's settings, has not ended within a few milliseconds;
-- nothing was made.
-- Guarantees: if true, they are there, and the caller sees them.
-- Locks: at the first delivery of a queue its row, for no key update; this one, or one after a start of the server,
-- waits up to 5 ms for each lock. Index: fq_queue_pkey, fq_queue_state_newest_ix, fq_epoch_pkey. Errors: none.
create function fairqueue.fq_open_queue(p_queue text)
returns boolean
language plpgsql
security definer
set lock_timeout = '5ms'
as $$
begin
  delete from fairqueue.fq_epoch e
  where e.xmin is distinct from e.written_by
    or e.started_at <> pg_postmaster_start_time();
  insert into fairqueue.fq_epoch (value)
  values (hashtextextended(gen_random_uuid()::text, 0))
  on conflict do nothing;
  -- The new version of the row has the same xmin as the one that is read here, in a subtransaction too.
  update fairqueue.fq_epoch e
  set written_by = e.xmin
  where num_nulls(e.written_by) = 1;
  if not exists (select from fairqueue.fq_queue_state s where s.queue = p_queue) then
    insert into fairqueue.fq_queue as q (name)
    values (p_queue)
    on conflict (name) do update
    set name = q.name;
    -- A new statement, which sees what the last holder of the row has made.
    insert into fairqueue.fq_queue_state (queue)
    select p_queue
    where not exists (select from fairqueue.fq_queue_state s where s.queue = p_queue);
  end if;
  return true;
exception
  when lock_not_available then
    return false;
end
$$;
