-- fq_end_ordering: tell the dispatcher that a message with an ordering key is gone, or has another key now. The trigger
-- of fq_message calls it, also where no other message of the key is seen: one may be held back before this transaction
-- commits.
-- Guarantees: one signal a message, with the transaction that ends it. Locks: none.
-- Index: fq_channel_pkey. Errors: none.
create function fairqueue.fq_end_ordering()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  insert into fairqueue.fq_signal (queue, channel_id, ordering_key)
  select c.queue, c.id, old.ordering_key
  from fairqueue.fq_channel c
  where c.id = old.channel_id;
  return null;
end
$$;
