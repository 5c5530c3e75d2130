-- fq_wait: register that a consumer waits for p_wait microseconds, so that producers for its queue wake it; 0: it waits
-- no more, and from the commit on no producer notifies for it.
-- Returns lease_id: the consumer's lease p_lease_id, which has the wait, or a new one if that has ended; it lives at
-- least as long as the wait. topic: the end of the payload of notifications for this queue and installation (see
-- fq_wake).
-- Guarantees: the consumer listens, commits this call, and polls once more before it waits: work that was committed in
-- between notified nobody. Keep p_wait short: producers notify a dead consumer until its wait is over.
-- Locks: the lease row, no key update: waits for an extension of the same lease. Index: fq_lease_pkey. Errors: QF001
-- bad argument; QF007.
create function fairqueue.fq_wait(
  p_queue text, p_consumer text, p_lease_id bigint, p_wait bigint,
  out lease_id bigint, out topic text
)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  if p_consumer is null or octet_length(p_consumer) > 512 or p_wait is null or p_wait not between 0 and 31536000000000
  then
    raise exception 'fq_wait has consumer %, wait % microseconds', left(p_consumer, 80), p_wait
      using errcode = 'QF001',
        hint = 'name the consumer in at most 512 bytes and let it wait for 0 microseconds to 365 days';
  end if;
  update fairqueue.fq_lease e
  set waiting_until = case when p_wait > 0 then v_now + p_wait end,
    expires_at = greatest(e.expires_at, v_now + p_wait)
  where e.id = p_lease_id
    and e.queue = p_queue
    and e.expires_at > v_now
  returning e.id, e.tableoid || ':' || p_queue into lease_id, topic;
  if not found and p_wait > 0 then
    insert into fairqueue.fq_lease as e (id, queue, consumer, expires_at, waiting_until)
    values (
      hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807, p_queue, p_consumer, v_now + p_wait,
      v_now + p_wait
    )
    returning e.id, e.tableoid || ':' || p_queue into lease_id, topic;
  end if;
end
$$;
