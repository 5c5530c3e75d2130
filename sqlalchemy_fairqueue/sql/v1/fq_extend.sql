-- fq_extend: let a lease that is still alive run for p_lease microseconds from now; never shortens it. Returns when it
-- expires.
-- Guarantees: null, and nothing changes, if the lease has expired or is gone, if it does not hold one of the given
-- deliveries any more, or if p_queue is given and the lease is of another queue.
-- Locks: the lease row, no key update: waits for a reclaim of the same lease, and for nothing else.
-- Index: fq_lease_pkey, fq_message_pkey. Errors: QF001 bad duration; QF007.
create function fairqueue.fq_extend(
  p_lease_id bigint, p_lease bigint, p_ids bigint[] default '{}', p_deliveries integer[] default '{}',
  p_queue text default null
)
returns bigint
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_expires_at bigint;
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], l.queue, null::text[])
  from fairqueue.fq_lease l
  where l.id = p_lease_id;
  perform fairqueue.fq_check_number('fq_extend has lease'::text, p_lease::bigint, 1::bigint, 31536000000000::bigint);
  update fairqueue.fq_lease l
  set expires_at = greatest(l.expires_at, v_now + p_lease)
  where l.id = p_lease_id
    and l.expires_at > v_now
    and (p_queue is null or l.queue = p_queue)
    and not exists (
      select
      from unnest(p_ids, p_deliveries) u(id, deliveries)
      where num_nulls(
          (
            select m.id
            from fairqueue.fq_message m
            where m.id = u.id
              and m.lease_id is not distinct from p_lease_id
              and m.deliveries = u.deliveries
          )
        ) = 1
    )
  returning l.expires_at into v_expires_at;
  return v_expires_at;
end
$$;
