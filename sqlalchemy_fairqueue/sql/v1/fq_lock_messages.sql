-- fq_lock_messages: lock messages in the order of their ids, leased or not, before verbs of one transaction that touch
-- messages of others as well as its own.
-- Guarantees: until the transaction ends nobody else settles, cancels, replaces or takes them. Missing messages are
-- passed over; one that fq_move_message puts into another channel meanwhile is locked there. A transaction that cancels
-- or replaces, and settles, locks all of them by one call: with several calls, two such transactions could deadlock.
-- Locks: the messages, for update; waits for a transaction that has one locked. Index: fq_message_pkey. Errors: 40001
-- under REPEATABLE READ and SERIALIZABLE; QF007.
create function fairqueue.fq_lock_messages(p_ids bigint[])
returns void
language plpgsql
security definer
as $$
declare
  v_found bigint[];
  v_rest bigint[] := p_ids;
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['producer', 'consumer', 'operator']::text[], c.queue, array[c.name]::text[])
    from fairqueue.fq_message m
    cross join lateral (
      select x.queue, x.name
      from fairqueue.fq_channel x
      where x.id = m.channel_id
      limit 1
    ) c
    where m.id = any (p_ids)
      and exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  -- Again, for messages that were moved meanwhile, as in fq_cancel.
  loop
    v_found := array(
      select m.id
      from fairqueue.fq_message m
      where m.id = any (v_rest)
      order by m.id
      for update
    );
    v_rest := array(
      select unnest(v_rest)
      except
      select unnest(v_found)
    );
    perform
    from fairqueue.fq_message m
    where m.id = any (v_rest)
    limit 1;
    exit when not found;
  end loop;
end
$$;
