-- fq_lease_for: the lease under which a dequeue takes messages: p_lease_id, if it is good for p_lease microseconds more
-- and of this epoch (fq_epoch), else a new one, good for an eighth longer. id null: the queue has got its
-- first limit since the caller looked (p_sight, of fq_look), so nothing may be taken. The caller has a channel locked.
-- Guarantees: until the transaction ends nobody takes the lease back, and nobody sets the first limit of the queue, see
-- fq_lock_queue. A lease that somebody has locked counts as gone, since it may be taken back at this moment.
-- Locks: the lease, for key share, skip locked. Index: fq_queue_pkey, fq_lease_pkey. Errors: none.
create function fairqueue.fq_lease_for(
  p_queue text, p_lease_id bigint, p_lease bigint, p_consumer text, p_sight record, p_now bigint,
  out id bigint, out expires_at bigint
)
language plpgsql
as $$
begin
  if not p_sight.is_limited and fairqueue.fq_is_limited(p_queue) then
    return;
  end if;
  select e.id, e.expires_at into id, expires_at
  from fairqueue.fq_lease e
  where e.id = p_lease_id
    and e.queue = p_queue
    and e.epoch = p_sight.epoch
    and e.expires_at >= p_now + p_lease
  for key share skip locked;
  if not found then
    id := hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807;
    expires_at := p_now + p_lease + p_lease / 8;
    insert into fairqueue.fq_lease (id, queue, consumer, expires_at, epoch)
    values (id, p_queue, p_consumer, expires_at, p_sight.epoch);
  end if;
end
$$;
