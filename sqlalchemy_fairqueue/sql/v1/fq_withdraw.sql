-- fq_withdraw: fq_cancel, and note it for those who wait for results of the messages, in the caller's transaction.
-- Returns what fq_cancel does.
-- Guarantees: as fq_cancel. Where the queue keeps results, each message that is withdrawn has the result 'cancelled'
-- from the commit on, also one that a consumer holds, however its handler ends. p_notify: notify those who wait (false
-- in a two-phase transaction).
-- Locks: as fq_cancel, and then the keys of the results. Index: as fq_cancel, fq_result_pkey, fq_result_wait_pkey.
-- Errors: as fq_cancel.
create function fairqueue.fq_withdraw(p_queue text, p_ids bigint[], p_notify boolean)
returns table (message_id bigint, outcome text)
language plpgsql
volatile
security definer
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
  v_now bigint := fairqueue.fq_now();
  v_retention bigint;
  v_channels text[];
  v_kinds text[];
  v_ids bigint[];
  v_outcomes text[];
begin
  select q.result_retention into v_retention
  from fairqueue.fq_queue q
  where q.name = p_queue;
  if v_retention is null then
    return query
    select c.message_id, c.outcome
    from fairqueue.fq_cancel(p_queue::text, p_ids::bigint[]) c;
    return;
  end if;
  select array_agg(m.channel order by u.ord), array_agg(m.kind order by u.ord)
  into v_channels, v_kinds
  from unnest(p_ids) with ordinality u(id, ord)
  left join lateral (
    select x.kind, c.name as channel
    from fairqueue.fq_message x
    join fairqueue.fq_channel c on c.id = x.channel_id
    where x.id = u.id
    limit 1
  ) m on true;
  select array_agg(c.message_id), array_agg(c.outcome) into v_ids, v_outcomes
  from fairqueue.fq_cancel(p_queue::text, p_ids::bigint[]) c;
  insert into fairqueue.fq_result (message_id, queue, channel, kind, outcome, finished_at, expires_at)
  select u.id, p_queue, u.channel, u.kind, 'cancelled', v_now, v_now + v_retention
  from unnest(p_ids, v_channels, v_kinds) u(id, channel, kind)
  where u.channel is not null
    and not exists (
      select
      from unnest(v_ids, v_outcomes) o(id, outcome)
      where o.id = u.id
        and o.outcome = 'missing'
    )
  order by u.id
  on conflict on constraint fq_result_pkey do nothing;
  if p_notify then
    perform fairqueue.fq_wake_results(p_queue::text, p_ids::bigint[]);
  end if;
  return query
  select o.id, o.outcome
  from unnest(v_ids, v_outcomes) o(id, outcome);
end
$$;
