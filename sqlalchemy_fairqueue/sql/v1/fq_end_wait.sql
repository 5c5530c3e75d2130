-- fq_end_wait: end the wait of a consumer (see fq_begin_wait).
-- Guarantees: from the commit on, producers no longer notify for its sake. A lease that is gone, or does not wait, is
-- left alone.
-- Locks: the lease row, no key update: waits for a reclaim or an extension of the same lease. Index: fq_lease_pkey.
-- Errors: QF007.
create function fairqueue.fq_end_wait(p_lease_id bigint)
returns void
language plpgsql
volatile
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], l.queue, null::text[])
  from fairqueue.fq_lease l
  where l.id = p_lease_id;
  update fairqueue.fq_lease e
  set waiting_until = null
  where e.id = p_lease_id
    and e.waiting_until is not null;
end
$$;
