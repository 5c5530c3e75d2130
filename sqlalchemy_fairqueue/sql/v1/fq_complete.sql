-- fq_complete: delete messages whose work is done, in the caller's transaction, and signal the slots that they free.
-- Returns the lost ones, for which nothing changed.
-- Guarantees: only the holder of a message's newest delivery completes it: the token is (id, lease id, deliveries), and
-- the message is of this queue. A token with a null is lost. A completion after the lease has expired counts as long as
-- no dequeue took it back. If the queue recorded its history at the delivery, the attempt is appended as
-- 'completed'. Ends of members of groups are noted, all of a call at once.
-- p_kept: for which deliveries a result is kept (null: none); p_results: what their handlers returned, encoded (null:
-- None); p_problems: why that is not kept (null: it is). A result is written only if this call ends the message. If the
-- message was cancelled while it was leased, fq_result says so already, and that stays. A result is kept as long as the
-- queue says at this moment; if the queue keeps none any more, none is. p_notify: notify those who wait for a result
-- (not in a two-phase transaction).
-- Locks: the messages, in the order of their ids, which waits for a transaction that has one locked; no channel. The
-- key of a result waits for nobody but a transaction that has the message locked.
-- Index: fq_channel_pkey; none of the messages while a row is where the delivery found it (no false conflicts under
-- SERIALIZABLE), else fq_message_pkey. With results also fq_queue_pkey, fq_result_pkey, fq_result_wait_pkey.
-- Errors: 40001; 23514 a result of more than 1,048,576 bytes; QF007.
create function fairqueue.fq_complete(
  p_queue text, p_ids bigint[], p_rows tid[], p_lease_ids bigint[], p_deliveries integer[],
  p_kept boolean[] default null, p_results bytea[] default null, p_problems text[] default null,
  p_notify boolean default false
)
returns table (message_id bigint, outcome text)
language plpgsql
security definer
as $$
declare
  v_channel_id bigint;
  v_done bigint[];
  v_slots integer;
  v_cost bigint;
  v_attempts bigint[];
  v_kinds text[];
  v_group_id uuid;
  v_ordering_key text;
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  if p_notify then
    perform fairqueue.fq_wake_results(p_queue, p_ids);
  end if;
  -- A single message where the delivery found it is deleted by a statement without arrays: to start the one of
  -- fq_complete_many costs more than its run.
  if cardinality(p_ids) = 1 and p_lease_ids[1] is not null and p_kept is null then
    delete from fairqueue.fq_message m
    where m.ctid = p_rows[1]
      and m.id is not distinct from p_ids[1]
      and m.lease_id is not distinct from p_lease_ids[1]
      and m.deliveries = p_deliveries[1]
      and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
    returning m.channel_id, m.slots, fairqueue.fq_charged(m.charged, m.cost::integer),
      fairqueue.fq_attempt(m.*),
      array[m.kind], case when not m.cancelled then m.group_id end, m.ordering_key
    into v_channel_id, v_slots, v_cost, v_attempts, v_kinds, v_group_id, v_ordering_key;
    if found then
      if v_group_id is not null then
        perform fairqueue.fq_end_members(p_ids::bigint[], array[v_group_id]::uuid[], false::boolean);
      end if;
      if v_slots > 0 then
        insert into fairqueue.fq_signal (queue, channel_id, freed, queue_freed, freed_cost, queue_freed_cost)
        values (
          p_queue, v_channel_id, v_slots & 1, v_slots >> 1, (v_slots & 1) * v_cost, (v_slots >> 1) * v_cost
        );
      end if;
      if v_ordering_key is not null then
        perform fairqueue.fq_tell_ordering(
          p_queue, array[v_channel_id]::bigint[], array[v_ordering_key]::text[]
        );
      end if;
      if v_attempts is not null then
        perform fairqueue.fq_record_attempts(
          p_queue, array[v_attempts]::bigint[], v_kinds, null::text[], 'completed'::text, null::boolean[],
          null::bigint
        );
      end if;
      return;
    end if;
  end if;

  v_done := fairqueue.fq_complete_many(
    p_queue, p_ids, p_rows, p_lease_ids, p_deliveries, p_kept, p_results, p_problems
  );
  if (cardinality(v_done) = cardinality(p_ids)) is not true then
    return query
    select distinct u.id, 'lost'
    from unnest(p_ids) u(id)
    where (u.id = any (v_done)) is not true;
  end if;
end
$$;
