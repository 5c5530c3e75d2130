-- fq_tell_ordering: for messages that are gone or were given back, leave a signal of each of their ordering keys of which
-- a message is held back, so that the next message of the key may go. Arrays of one length; a key may be null.
-- Guarantees: a statement of its own, whose snapshot is younger than the end of the messages. If a message is held back
-- at the same time, this transaction cannot see it, but it has a signal of its own. Who hears that signal looks again
-- while this transaction is open, see fq_let_go. Above READ COMMITTED the snapshot lacks what was held back since the
-- transaction began: a signal is left in any case.
-- Locks: none. Index: fq_message_held_ix. Errors: none.
create function fairqueue.fq_tell_ordering(p_queue text, p_channel_ids bigint[], p_ordering_keys text[])
returns void
language plpgsql
as $$
begin
  insert into fairqueue.fq_signal (queue, channel_id, ordering_key)
  select distinct p_queue, u.channel_id, u.ordering_key
  from unnest(p_channel_ids, p_ordering_keys) u(channel_id, ordering_key)
  where u.ordering_key is not null
    and (
      current_setting('transaction_isolation') <> 'read committed'
      or exists (
        select
        from fairqueue.fq_message m
        where m.channel_id = u.channel_id
          and m.ordering_key = u.ordering_key
          and m.dequeue_at = 9223372036854775807
      )
    );
end
$$;
