-- fq_cancel: withdraw messages of a queue, in the caller's transaction. Returns for each 'cancelled'; 'leased': a
-- consumer has the message and may still complete it; or 'missing': it has ended, or is of another queue.
-- Guarantees: a withdrawn message is never delivered, unless the transaction rolls back. A leased one that is not
-- completed is not delivered again and leaves no dead letter; fq_heartbeat tells its worker, and its key is free at
-- once. If the queue keeps results, each has the result 'cancelled'. p_notify: notify those who wait for results.
-- Locks: as fq_lock_messages, which a transaction that settles as well calls first, for all messages; dequeues pass them
-- by. The results come last. Index: as there; fq_result_pkey, fq_result_wait_pkey. Errors: 40001; QF007.
create function fairqueue.fq_cancel(p_queue text, p_ids bigint[], p_notify boolean default false)
returns table (message_id bigint, outcome text)
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_ids bigint[] := p_ids;
  v_outcomes text[];
  v_retention bigint;
begin
  perform fairqueue.fq_check_message_grant(array['producer', 'operator']::text[], p_queue, v_ids);
  v_ids := fairqueue.fq_lock_messages(p_queue, v_ids);
  -- A move may have put one into a channel that the caller's grant does not cover. Now that the messages are locked,
  -- neither their channels nor who has leased them change any more.
  perform fairqueue.fq_check_message_grant(array['producer', 'operator']::text[], p_queue, v_ids);
  select q.result_retention into v_retention
  from fairqueue.fq_queue q
  where q.name = p_queue;
  with gone as (
    delete from fairqueue.fq_message m
    where m.id = any (v_ids)
      and num_nulls(m.lease_id) = 1
    returning m.id, m.channel_id, m.kind
  ),
  flagged as (
    update fairqueue.fq_message m
    set cancelled = true,
      cancelled_at = coalesce(m.cancelled_at, v_now),
      key = null
    where m.id = any (v_ids)
      and num_nulls(m.lease_id) = 0
    returning m.id, m.channel_id, m.kind
  ),
  signalled as (
    insert into fairqueue.fq_signal (queue, channel_id, added, bounded)
    select p_queue, g.channel_id, -count(*), true
    from gone g
    group by g.channel_id
  ),
  told as (
    insert into fairqueue.fq_result (message_id, queue, channel, kind, outcome, finished_at, expires_at)
    select m.id, p_queue, (select c.name from fairqueue.fq_channel c where c.id = m.channel_id), m.kind, 'cancelled',
      v_now, v_now + v_retention
    from (
      select g.*
      from gone g
      union all
      select f.*
      from flagged f
    ) m
    where v_retention is not null
    order by m.id
    on conflict on constraint fq_result_pkey do nothing
  )
  select array_agg(o.id), array_agg(o.outcome) into v_ids, v_outcomes
  from (
    select g.id, 'cancelled' as outcome
    from gone g
    union all
    select f.id, 'leased'
    from flagged f
  ) o;
  if p_notify and v_retention is not null then
    perform fairqueue.fq_wake_results(p_queue::text, p_ids::bigint[]);
  end if;

  return query
  select i.id, coalesce(o.outcome, 'missing')
  from (select distinct unnest(p_ids) as id) i
  left join unnest(v_ids, v_outcomes) o(id, outcome) on o.id = i.id
  where i.id is not null;
end
$$;
