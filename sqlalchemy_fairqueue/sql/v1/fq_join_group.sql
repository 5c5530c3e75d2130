-- fq_join_group: count p_added messages that the caller's transaction has enqueued as members of a group. p_message_id
-- null: the transaction made the group, even if it adds no member. Else the member p_message_id adds them while it is
-- leased (its token), and the caller has locked it by fq_lock_messages.
-- Guarantees: returns 'joined'; 'lost': the delivery is not its holder's any more; 'cancelled': the member was
-- cancelled, and adds no further members; 'stranger': the group was not made by this transaction, or the message is no
-- member of it. Unless 'joined' is returned, the caller rolls back. The locked member ends after this commit at the
-- earliest, so a group is never finished before what its members add.
-- Locks: none of other transactions' rows. Index: fq_group_pkey, fq_message_pkey, fq_group_note_pkey.
-- Errors: QF001 bad argument; QF007.
create function fairqueue.fq_join_group(
  p_queue text, p_group_id uuid, p_added integer, p_message_id bigint, p_lease_id bigint, p_deliveries integer
)
returns text
language plpgsql
security definer
as $$
declare
  v_group_id uuid;
  v_cancelled boolean;
begin
  perform fairqueue.fq_check_grant(array['producer']::text[], p_queue, '{}'::text[]);
  perform fairqueue.fq_check_number('fq_join_group has members to add'::text, p_added::bigint, 0::bigint, null::bigint);
  if num_nulls(p_message_id) = 1 then
    perform
    from fairqueue.fq_group g
    where g.group_id = p_group_id
      and g.queue = p_queue
      and g.created_xid = pg_current_xact_id();
    if not found then
      return 'stranger';
    end if;
  else
    select m.group_id, m.cancelled into v_group_id, v_cancelled
    from fairqueue.fq_find_delivery(p_queue, p_message_id, p_lease_id, p_deliveries) m;
    if not found then
      return 'lost';
    elsif (v_group_id = p_group_id) is not true then
      return 'stranger';
    elsif v_cancelled then
      return 'cancelled';
    end if;
  end if;
  insert into fairqueue.fq_group_note as n (id, group_id, added)
  values (0, p_group_id, p_added)
  on conflict (xid, id, group_id) do update
  set added = n.added + excluded.added;
  return 'joined';
end
$$;
