-- fq_end_leases: end leases of a queue that hold no message, when their consumer stops. Returns how many.
-- Guarantees: a lease that holds a message stays and expires as ever; so does one that a dequeue uses just now.
-- Producers do not notify for a lease that has ended.
-- Locks: the leases for update skip locked (a dequeue has its own locked for key share), in the order of their ids.
-- Never waits.
-- Index: fq_lease_pkey, fq_message_lease_ix. Errors: QF007.
create function fairqueue.fq_end_leases(p_queue text, p_lease_ids bigint[])
returns integer
language plpgsql
security definer
as $$
declare
  v_leases bigint[];
  v_ended integer;
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  v_leases := array(
    select e.id
    from fairqueue.fq_lease e
    where e.id = any (p_lease_ids)
      and e.queue = p_queue
    order by e.id
    for update skip locked
  );

  -- A new statement: the dequeues that used these leases have committed, so their messages are seen.
  delete from fairqueue.fq_lease e
  where e.id = any (v_leases)
    and not exists (
      select
      from fairqueue.fq_message m
      where m.lease_id = e.id
    );
  get diagnostics v_ended = row_count;
  return v_ended;
end
$$;
