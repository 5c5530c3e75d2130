-- fq_leased_without_slot: the leased messages of a queue, or of the channels p_channels (null: all), that do not hold
-- the slot p_slot (1: their channel's, 2: the queue's), in no order: those to which fq_give_slots gives it.
-- Guarantees: while the caller has the state rows of the channels locked, or has called fq_lock_queue, none is
-- added.
-- Locks: none. Index: fq_lease_expires_ix, fq_message_lease_ix, fq_channel_pkey. Errors: QF007.
create function fairqueue.fq_leased_without_slot(p_queue text, p_slot integer, p_channels text[])
returns bigint[]
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[]);
  return array(
    select m.id
    from fairqueue.fq_lease e
    join fairqueue.fq_message m on m.lease_id = e.id
    where e.queue = p_queue
      and m.slots & p_slot = 0
      and (
        p_channels is null
        or exists (
          select
          from fairqueue.fq_channel c
          where c.id = m.channel_id
            and c.name = any (p_channels)
        )
      )
  );
end
$$;
