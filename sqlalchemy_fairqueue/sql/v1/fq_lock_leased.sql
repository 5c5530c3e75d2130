-- fq_lock_leased: lock the messages of a queue, or of one of its channels, that are out and do not hold the slot p_slot
-- (1: their channel's, 2: the queue's).
-- Guarantees: until the transaction ends nobody else ends them. Used before the slot is given to them.
-- Locks: the messages, for no key update, in the order of their ids; waits for a transaction that has one locked.
-- Index: fq_lease_expires_ix, fq_message_lease_ix. Errors: 40001 under REPEATABLE READ and SERIALIZABLE.
create function fairqueue.fq_lock_leased(p_queue text, p_slot integer, p_channel_id bigint default null)
returns void
language plpgsql
volatile
as $$
begin
  -- By an expression: for the bare id a plan of the empty tables reads all messages in the order of their key.
  perform
  from fairqueue.fq_lease e
  join fairqueue.fq_message m on m.lease_id = e.id
  where e.queue = p_queue
    and (p_channel_id is null or m.channel_id = p_channel_id)
    and m.slots & p_slot = 0
  order by m.id + 0
  for no key update of m;
end
$$;
