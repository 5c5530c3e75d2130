-- fq_find_waiting: the first undelivered message of a channel with a kind and an ordering key, but for those of p_hold,
-- which the transaction settles or cancels later. Null: there is none, or others have all of them locked.
-- Guarantees: until the transaction ends nobody takes the message, so its handler sees what the transaction did.
-- Several transactions may have it locked at once.
-- Locks: the message, for share, skip locked. Index: fq_message_ordering_ix. Errors: 40001 under REPEATABLE READ and
-- SERIALIZABLE, if the message was changed since the snapshot.
create function fairqueue.fq_find_waiting(p_channel_id bigint, p_kind text, p_ordering_key text, p_hold bigint[])
returns bigint
language plpgsql
as $$
begin
  return (
    select m.id
    from fairqueue.fq_message m
    where m.channel_id = p_channel_id
      and m.ordering_key = p_ordering_key
      and m.lease_id is null
      and m.kind = p_kind
      and (m.id = any (p_hold)) is not true
    order by m.channel_id, m.ordering_key, m.lease_id, (m.deliveries = 0), m.id
    limit 1
    for share skip locked
  );
end
$$;
