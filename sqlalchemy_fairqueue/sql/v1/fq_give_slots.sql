-- fq_give_slots: give the slot p_slot (1: their channel's, 2: the queue's) to the messages of a queue, or of one of its
-- channels, that are out and do not hold it, since a limit begins. Returns how many.
-- Guarantees: nobody ends them before the transaction ends, so that each slot is counted once and freed once, when the
-- caller has seen to it that no further message is leased.
-- Locks: as fq_lock_leased: waits for a transaction that has one of the messages locked.
-- Index: fq_lease_expires_ix, fq_message_lease_ix. Errors: 40001 under REPEATABLE READ and SERIALIZABLE.
create function fairqueue.fq_give_slots(p_queue text, p_slot integer, p_channel_id bigint)
returns integer
language plpgsql
volatile
as $$
declare
  v_given integer;
begin
  perform fairqueue.fq_lock_leased(p_queue, p_slot, p_channel_id);
  -- A new statement, which sees the commits that it waited for.
  update fairqueue.fq_message m
  set slots = m.slots | p_slot
  from fairqueue.fq_lease e
  where e.queue = p_queue
    and m.lease_id = e.id
    and (p_channel_id is null or m.channel_id = p_channel_id)
    and m.slots & p_slot = 0;
  get diagnostics v_given = row_count;
  return v_given;
end
$$;
