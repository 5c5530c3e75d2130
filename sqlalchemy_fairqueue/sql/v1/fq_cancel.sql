-- fq_cancel: withdraw messages of a queue, in the caller's transaction. Returns for each 'cancelled'; 'leased': a
-- consumer has the message and may still complete it; or 'missing': it has ended, or is of another queue.
-- Guarantees: a withdrawn message is never delivered, unless the transaction rolls back. A leased one that is not
-- completed is not delivered again and leaves no dead letter; fq_heartbeat tells its worker, and its key is free at
-- once. If the queue keeps results, each has the result 'cancelled'. p_notify: notify those who wait for results.
-- Locks: the messages, in the order of their ids, those that were just moved last; waits for who has one locked, while
-- dequeues pass it by. A transaction that settles as well locks all messages first, by fq_lock_messages. The results
-- come last. Index: fq_message_pkey, fq_channel_pkey, fq_result_pkey, fq_result_wait_pkey. Errors: 40001; QF007.
create function fairqueue.fq_cancel(p_queue text, p_ids bigint[], p_notify boolean default false)
returns table (message_id bigint, outcome text)
language plpgsql
security definer
as $$
declare
  v_owner boolean := pg_has_role(fairqueue.fq_caller(), current_user, 'usage');
  v_ids bigint[];
  v_found bigint[];
  v_rest bigint[] := p_ids;
  v_leased bigint[];
  v_now bigint := fairqueue.fq_now();
  v_retention bigint;
begin
  select q.result_retention into v_retention
  from fairqueue.fq_queue q
  where q.name = p_queue;

  -- A move deletes the message and inserts it again: who has waited for the move finds no row. So look for missing
  -- messages in a new statement, until that does not see them either.
  loop
    if not v_owner then
      perform fairqueue.fq_check_grant(array['producer', 'operator']::text[], p_queue, w.channels::text[])
      from (
        select coalesce(array_agg(distinct c.name::text), '{}'::text[]) as channels
        from fairqueue.fq_message m
        cross join lateral (
          select x.name
          from fairqueue.fq_channel x
          where x.id = m.channel_id
            and x.queue = p_queue
          limit 1
        ) c
        where m.id = any (p_ids)
      ) w
      where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
    end if;
    if v_ids is not null then
      perform
      from fairqueue.fq_message m
      where m.id = any (v_rest)
        and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
      limit 1;
      exit when not found;
    end if;
    v_found := array(
      select m.id
      from fairqueue.fq_message m
      where m.id = any (v_rest)
        and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
      order by m.id
      for update
    );
    v_ids := coalesce(v_ids, '{}') || v_found;
    v_rest := array(
      select unnest(v_rest)
      except
      select unnest(v_found)
    );
    -- Others than the owner go on: the grant must cover the channels of what is locked now, too.
    exit when v_owner and v_rest = '{}';
  end loop;

  -- A new statement sees what the transactions committed that this one waited for. Who has leased the messages does not
  -- change any more.
  insert into fairqueue.fq_result (message_id, queue, channel, kind, outcome, finished_at, expires_at)
  select m.id, p_queue, (select c.name from fairqueue.fq_channel c where c.id = m.channel_id), m.kind, 'cancelled',
    v_now, v_now + v_retention
  from fairqueue.fq_message m
  where m.id = any (v_ids)
    and v_retention is not null
  order by m.id
  on conflict on constraint fq_result_pkey do nothing;
  with gone as (
    delete from fairqueue.fq_message m
    where m.id = any (v_ids)
      and num_nulls(m.lease_id) = 1
    returning m.channel_id
  ),
  signalled as (
    insert into fairqueue.fq_signal (queue, channel_id, added, bounded)
    select p_queue, g.channel_id, -count(*), true
    from gone g
    group by g.channel_id
  ),
  flagged as (
    update fairqueue.fq_message m
    set cancelled = true,
      cancelled_at = coalesce(m.cancelled_at, v_now),
      key = null
    where m.id = any (v_ids)
      and num_nulls(m.lease_id) = 0
    returning m.id
  )
  select array_agg(f.id) into v_leased
  from flagged f;
  if p_notify and v_retention is not null then
    perform fairqueue.fq_wake_results(p_queue::text, p_ids::bigint[]);
  end if;

  return query
  select i.id, case when l.id is null then 'cancelled' else 'leased' end
  from unnest(v_ids) i(id)
  left join unnest(v_leased) l(id) on l.id = i.id
  union all
  select distinct n.id, 'missing'
  from unnest(v_rest) n(id)
  where n.id is not null;
end
$$;
