-- fq_make_stage_channels: make up to p_limit channels that a stage names and its queue does not have. Returns how many
-- were new to this call. Before it merges, a load calls it, each time in a transaction of its own, until it returns
-- less than p_limit: others could wait for the first use of a channel. Channels start with the queue's defaults, or
-- else with p_policy, as in fq_enqueue.
-- Guarantees and locks: as fq_make_channels. Index: fq_channel_queue_name_key. Errors: QF001 bad name or policy; 42P01,
-- 42501 as fq_find_stage; QF007.
create function fairqueue.fq_make_stage_channels(
  p_queue text, p_stage text, p_attempts bigint[], p_limit integer, p_policy jsonb default null
)
returns integer
language plpgsql
security definer
set work_mem = '32MB'
as $$
declare
  v_schema regnamespace := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_load));
  v_names text[];
  v_stage regclass := fairqueue.fq_find_stage(p_stage);
begin
  perform fairqueue.fq_check_grant(array['loader']::text[], p_queue, null::text[]);
  execute format(
    'select array_agg(n.channel) from ('
    '  select s.channel from (select distinct g.channel from %s g where g.attempt = any (%L)) s'
    '  where not exists ('
    '    select from %s.fq_channel c join %s.fq_channel_state n on n.channel_id = c.id and n.forget_xid is null'
    '    where c.queue = %L and c.name = s.channel'
    '  )'
    '  order by s.channel limit %s'
    ') n',
    v_stage, p_attempts, v_schema, v_schema, p_queue, p_limit
  )
  into v_names;
  if v_names is null then
    return 0;
  end if;
  perform fairqueue.fq_make_channels(p_queue, v_names, p_policy);
  return cardinality(v_names);
end
$$;
