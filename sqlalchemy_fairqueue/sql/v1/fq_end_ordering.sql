-- fq_end_ordering: when a message with an ordering key is gone or gets another key, or a dead letter that held the key
-- is gone, leave a signal of the key if a message of it is held back. Triggers of fq_message and fq_dead_letter call
-- it.
-- Guarantees: if a message is held back at the same time, this transaction cannot see it, but it has a signal of its
-- own. Who hears that signal looks again while this transaction is open, see fq_let_go. Above READ COMMITTED the
-- snapshot lacks what was held back since the transaction began: a signal is left in any case.
-- Locks: none. Index: fq_message_held_ix, fq_channel_pkey. Errors: none.
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
