-- fq_lock_messages: lock messages of a queue in the order of their ids, leased or not, before verbs of one transaction
-- that touch messages of others as well as its own. Returns the ids of those that are locked; others are missing.
-- Guarantees: until the transaction ends nobody else settles, cancels, replaces or takes them. One that fq_move_message
-- puts into another channel meanwhile is locked there. A transaction that cancels or replaces, and settles, locks all of
-- them by one call: with several calls, two such transactions could deadlock.
-- Locks: the messages, for update, those that were just moved last; waits for a transaction that has one locked. Index:
-- fq_message_pkey, fq_channel_pkey. Errors: 40001 under REPEATABLE READ and SERIALIZABLE; QF007.
create function fairqueue.fq_lock_messages(p_queue text, p_ids bigint[])
returns bigint[]
language plpgsql
security definer
as $$
declare
  v_ids bigint[] := '{}';
  v_found bigint[];
  v_rest bigint[] := p_ids;
begin
  perform fairqueue.fq_check_message_grant(
    array['producer', 'consumer', 'operator', 'loader']::text[], p_queue, p_ids
  );
  -- A move deletes the message and inserts it again: who has waited for the move finds no row. So look for missing
  -- messages in a new statement, until that does not see them either.
  loop
    v_found := array(
      select m.id
      from fairqueue.fq_message m
      where m.id = any (v_rest)
        and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
      order by m.id
      for update
    );
    v_ids := v_ids || v_found;
    v_rest := array(
      select unnest(v_rest)
      except
      select unnest(v_found)
    );
    perform
    from fairqueue.fq_message m
    where m.id = any (v_rest)
      and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
    limit 1;
    exit when not found;
  end loop;
  return v_ids;
end
$$;
