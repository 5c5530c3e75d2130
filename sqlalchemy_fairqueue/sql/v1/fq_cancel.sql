-- fq_cancel: withdraw messages of a queue that are not in a consumer's hands, in the caller's transaction.
-- Guarantees: a withdrawn message is never delivered, unless the transaction rolls back. Returns those that were not withdrawn:
-- 'leased' (a consumer has it) or 'missing' (done, dead, withdrawn before, or of another queue).
-- Locks: the messages, in the order of their ids; dequeue passes by a message that a cancel has locked.
-- Index: fq_message_pkey. Errors: 40001 under REPEATABLE READ and SERIALIZABLE when the message was delivered since the snapshot.
create function fairqueue.fq_cancel(p_queue text, p_ids bigint[])
returns table (message_id bigint, outcome text)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_done bigint[];
begin
  with done as (
    delete from fairqueue.fq_message m
    using (
      select distinct x.id
      from unnest(p_ids) x(id)
      order by x.id
    ) u
    where m.id = u.id
      and num_nulls(m.lease_id) = 1
      and exists (
        select
        from fairqueue.fq_channel c
        where c.id = m.channel_id
          and c.queue = p_queue
      )
    returning m.id
  )
  select array_agg(d.id) into v_done
  from done d;

  return query
  select u.id, case when m.id is null then 'missing' else 'leased' end
  from unnest(p_ids) u(id)
  left join (
    fairqueue.fq_message m join fairqueue.fq_channel c on c.id = m.channel_id and c.queue = p_queue
  ) on m.id = u.id
  where u.id <> all (coalesce(v_done, '{}'));
end
$$;
