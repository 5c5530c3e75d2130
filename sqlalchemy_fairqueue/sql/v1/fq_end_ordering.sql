-- fq_end_ordering: tell the dispatcher that a message with an ordering key is gone, or has another key now, or a dead
-- letter that held the key is gone, if one of the key is held back. Triggers of fq_message and fq_dead_letter call it.
-- Guarantees: a message that is held back at the same time, which this transaction cannot see, has a signal of its own;
-- who hears that looks again while this transaction is open, see fq_let_go. A transaction with one snapshot for all of
-- its statements does not see what was held back since it began: it leaves a signal in any case. Locks: none.
-- Index: fq_message_held_ix, fq_channel_pkey. Errors: none.
create function fairqueue.fq_end_ordering()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  if current_setting('transaction_isolation') = 'read committed' and not exists (
    select
    from fairqueue.fq_message m
    where m.channel_id = old.channel_id
      and m.ordering_key = old.ordering_key
      and m.dequeue_at = 9223372036854775807
  ) then
    return null;
  end if;
  insert into fairqueue.fq_signal (queue, channel_id, ordering_key)
  select c.queue, c.id, old.ordering_key
  from fairqueue.fq_channel c
  where c.id = old.channel_id;
  return null;
end
$$;
