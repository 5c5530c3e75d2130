-- fq_make_channels: ids of the named channels of a queue, made where they are new.
-- Guarantees: one identity row and one state row a channel, with the queue's defaults; if it has none, with p_policy
-- (its fields as fq_changed_policy takes them; null: without limits).
-- Locks: first use of a channel waits for another transaction that is making the same one; names are taken in COLLATE
-- "C" order.
-- Index: fq_channel_queue_name_key. Errors: QF001 for a bad policy, or a name that is empty or longer
-- than 512 bytes; 40001 under REPEATABLE READ and SERIALIZABLE when another transaction made the channel since the
-- snapshot.
create function fairqueue.fq_make_channels(p_queue text, p_names text[], p_policy jsonb default null)
returns void
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
declare
  v_defaults jsonb;
  v_policy fairqueue.fq_channel_state;
begin
  perform fairqueue.fq_check_names((p_queue || p_names)::text[]);
  select q.defaults into v_defaults
  from fairqueue.fq_queue q
  where q.name = p_queue;
  v_policy := jsonb_populate_record(
    null::fairqueue.fq_channel_state,
    fairqueue.fq_changed_policy(v_defaults, (case when v_defaults is null then p_policy end)::jsonb)
  );

  with made as (
    insert into fairqueue.fq_channel (queue, name)
    select p_queue, w.name
    from (
      select distinct n collate "C" as name
      from unnest(p_names) n
      order by 1
    ) w
    on conflict (queue, name) do nothing
    returning id
  )
  insert into fairqueue.fq_channel_state (
    channel_id, queue, max_concurrency, rate_interval, rate_burst, weight, max_backlog, drop_when_full,
    priority_aging
  )
  select m.id, p_queue, v_policy.max_concurrency, v_policy.rate_interval, v_policy.rate_burst, v_policy.weight,
    v_policy.max_backlog, v_policy.drop_when_full, v_policy.priority_aging
  from made m;
end
$$;
