-- fq_give_slots: give the slot p_slot (1: their channel's, 2: the queue's) to leased messages of a queue, or of one of
-- its channels, that do not hold it yet, because a limit begins. Returns how many they are, and what they cost.
-- Guarantees: nobody ends them before the transaction ends. So each slot is counted once and freed once, if the caller
-- keeps further messages from being leased.
-- Locks: the messages, for no key update, in the order of their ids; waits for a transaction that has one locked.
-- Index: fq_lease_expires_ix, fq_message_lease_ix. Errors: 40001 under REPEATABLE READ and SERIALIZABLE.
create function fairqueue.fq_give_slots(
  p_queue text, p_slot integer, p_channel_id bigint, out given integer, out cost bigint
)
language plpgsql
as $$
begin
  -- An expression: ordered by the bare id, a plan made on empty tables would read all messages by their primary key.
  perform
  from fairqueue.fq_lease e
  join fairqueue.fq_message m on m.lease_id = e.id
  where e.queue = p_queue
    and (p_channel_id is null or m.channel_id = p_channel_id)
    and m.slots & p_slot = 0
  order by m.id + 0
  for no key update of m;
  -- A new statement, which sees the commits that it waited for.
  with marked as (
    update fairqueue.fq_message m
    set slots = m.slots | p_slot
    from fairqueue.fq_lease e
    where e.queue = p_queue
      and m.lease_id = e.id
      and (p_channel_id is null or m.channel_id = p_channel_id)
      and m.slots & p_slot = 0
    returning fairqueue.fq_charged(m.charged, m.cost::integer) as cost
  )
  select count(*), coalesce(sum(m.cost), 0) into given, cost
  from marked m;
end
$$;
