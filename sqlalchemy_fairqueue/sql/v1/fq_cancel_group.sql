-- fq_cancel_group: withdraw all members of a group that have not ended, in the caller's transaction. Returns how many
-- were deleted, and how many are leased, which go unless their consumers complete them; no row: there is no such group.
-- Guarantees: as fq_cancel for each member. A cancelled member adds no further members, so none is left out. The group
-- is finished when its leased members have ended, and its follow-up is enqueued then, as ever.
-- Locks: the members, in the order of their ids; waits for transactions that have one locked. A group of a million
-- members takes tens of seconds. Index: fq_group_pkey, fq_message_group_ix. Errors: QF003 above READ COMMITTED, where a
-- member that another one has just added would be left out; 40001; QF007.
create function fairqueue.fq_cancel_group(p_queue text, p_group_id uuid)
returns table (cancelled bigint, leased bigint)
language plpgsql
security definer
as $$
declare
  v_ids bigint[];
begin
  -- fq_cancel asks for the channels of the members.
  perform fairqueue.fq_check_grant(array['producer', 'operator']::text[], p_queue, '{}'::text[]);
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'fq_cancel_group runs in a % transaction', current_setting('transaction_isolation')
      using errcode = 'QF003', hint = 'run it in a READ COMMITTED transaction';
  end if;
  perform
  from fairqueue.fq_group g
  where g.group_id = p_group_id
    and g.queue = p_queue;
  if not found then
    return;
  end if;
  cancelled := 0;
  leased := 0;
  -- Again, for members that a member added before it was cancelled.
  loop
    select array_agg(m.id) into v_ids
    from fairqueue.fq_message m
    where m.group_id = p_group_id
      and not m.cancelled
      and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue;
    exit when v_ids is null;
    select leased + count(*) filter (where c.outcome = 'leased'),
      cancelled + count(*) filter (where c.outcome = 'cancelled')
    into leased, cancelled
    from fairqueue.fq_cancel(p_queue::text, v_ids::bigint[], false::boolean) c;
  end loop;
  return next;
end
$$;
