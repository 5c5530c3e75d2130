-- fq_heartbeat: let leases that are alive run for p_lease microseconds from now, and tell what was cancelled under
-- them: one row for each given lease. p_ids, p_deliveries: deliveries that each lease must still hold.
-- Guarantees: never shortens a lease. expires_at null: the lease has expired or is gone, so that others may have its
-- messages; or it is not of p_queue, if that is given; or it does not hold one of these deliveries any more.
-- cancelled: messages that were withdrawn while the lease has them, in the order of their ids, by each call until they
-- are settled.
-- Locks: the lease rows, no key update, in the order of their ids; waits for an extension or a reclaim of the same
-- lease. Index: fq_lease_pkey, fq_message_lease_ix, fq_message_pkey. Errors: QF001 bad duration; QF007.
create function fairqueue.fq_heartbeat(
  p_lease_ids bigint[], p_lease bigint, p_queue text default null, p_ids bigint[] default '{}',
  p_deliveries integer[] default '{}'
)
returns table (lease_id bigint, expires_at bigint, cancelled bigint[])
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_lease_id bigint;
  v_expires_at bigint;
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], l.queue, null::text[])
  from fairqueue.fq_lease l
  where l.id = any (p_lease_ids);
  perform fairqueue.fq_check_number('fq_heartbeat has lease'::text, p_lease::bigint, 1::bigint, 31536000000000::bigint);
  for v_lease_id in
    select distinct u.id
    from unnest(p_lease_ids) u(id)
    where u.id is not null
    order by u.id
  loop
    update fairqueue.fq_lease e
    set expires_at = greatest(e.expires_at, v_now + p_lease)
    where e.id = v_lease_id
      and e.expires_at > fairqueue.fq_now()
      and (p_queue is null or e.queue = p_queue)
      and not exists (
        select
        from unnest(p_ids, p_deliveries) u(id, deliveries)
        where num_nulls(
            (
              select m.id
              from fairqueue.fq_message m
              where m.id = u.id
                and m.lease_id is not distinct from v_lease_id
                and m.deliveries = u.deliveries
            )
          ) = 1
      )
    returning e.expires_at into v_expires_at;
    lease_id := v_lease_id;
    expires_at := v_expires_at;
    cancelled := '{}';
    if v_expires_at is not null then
      -- A new statement: it sees a cancel that has committed meanwhile. An expression: see fq_give_slots.
      select coalesce(array_agg(m.id order by m.id + 0), '{}') into cancelled
      from fairqueue.fq_message m
      where m.lease_id = v_lease_id
        and m.cancelled;
    end if;
    return next;
  end loop;
end
$$;
