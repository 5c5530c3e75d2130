-- fq_merge_in_order: enqueue by fq_enqueue those messages of a bulk load that need more than an insert, in the order
-- (channel, key), 1000 a call, in the caller's transaction. p_stage: the messages s and their channels c(channel, id);
-- p_condition: which of them; both in SQL. p_keyed: some have keys. Returns the numbers of messages by outcome.
-- Locks: as fq_enqueue. Unlike an enqueue, replacing locks messages before keys, so that it could deadlock with one:
-- with p_keyed it waits 500 ms at most, and gives up before PostgreSQL chooses the other transaction as the victim.
-- Index: fq_message_key, and as fq_enqueue. Errors: as fq_enqueue; QF005 a channel is full; 55P03.
create function fairqueue.fq_merge_in_order(
  p_queue text, p_job_id text, p_on_duplicate text, p_stage text, p_condition text, p_keyed boolean
)
returns table (created bigint, replaced bigint, duplicates bigint, dropped bigint)
language plpgsql
as $$
declare
  c_chunk constant integer := 1000;
  v_schema regnamespace := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_load));
  v_timeout text := current_setting('lock_timeout');
  v_held bigint[];
  v_full text;
  v_created bigint := 0;
  v_replaced bigint := 0;
  v_duplicates bigint := 0;
  v_dropped bigint := 0;
  r record;
begin
  if p_keyed then
    perform set_config('lock_timeout', '500ms', true);
  end if;
  if p_on_duplicate = 'replace' then
    execute format(
      'select array_agg(m.id) from %s'
      ' cross join lateral ('
      '   select m.id from %s.fq_message m where m.channel_id = c.id and m.key = s.key limit 1'
      ' ) m'
      ' where s.key is not null',
      p_stage, v_schema
    )
    into v_held;
    perform fairqueue.fq_lock_messages(p_queue, v_held);
  end if;
  for r in
    execute format(
      'select array_agg(n.channel order by n.position) as channels, array_agg(n.kind order by n.position) as kinds,'
      '  array_agg(n.content order by n.position) as contents, array_agg(n.headers order by n.position) as headers,'
      '  array_agg(n.delay order by n.position) as delays, array_agg(n.at order by n.position) as ats,'
      '  array_agg(n.priority order by n.position) as priorities, array_agg(n.key order by n.position) as keys,'
      '  array_agg(n.max_attempts order by n.position) as max_attempts,'
      '  array_agg(n.cost order by n.position) as costs, array_agg(n.group_id order by n.position) as groups,'
      '  array_agg(n.ordering_key order by n.position) as ordering_keys,'
      '  count(*)::integer as messages'
      ' from ('
      '   select s.*, row_number() over (order by s.channel, s.key nulls first, s.attempt, s.ordinal) as position'
      '   from %s'
      '   where %s'
      ' ) n'
      ' group by (n.position - 1) / %s'
      ' order by (n.position - 1) / %s',
      p_stage, p_condition, c_chunk, c_chunk
    )
  loop
    select v_created + count(*) filter (where e.outcome = 'created'),
      v_replaced + count(*) filter (where e.outcome = 'replaced'),
      v_duplicates + count(*) filter (where e.outcome = 'duplicate'),
      v_dropped + count(*) filter (where e.outcome = 'dropped'),
      min(r.channels[e.ordinal]) filter (where e.outcome = 'full')
    into v_created, v_replaced, v_duplicates, v_dropped, v_full
    from fairqueue.fq_enqueue(
      p_queue, r.channels::text[], r.kinds::text[], r.contents::bytea[], r.headers::jsonb[], r.delays::bigint[],
      r.ats::bigint[], r.priorities::integer[], r.keys::text[], r.max_attempts::integer[], null::jsonb,
      array_fill(p_on_duplicate, array[r.messages])::text[], false::boolean, null::bigint[],
      r.costs::integer[], r.groups::uuid[], null::bigint[], null::boolean[], false::boolean,
      r.ordering_keys::text[]
    ) e;
    if v_full is not null then
      raise exception 'channel % of queue % has no room for the messages of job %',
          left(v_full, 80), p_queue, left(p_job_id, 80)
        using errcode = 'QF005',
          hint = 'run the job again later, or give the channel a greater max_backlog; nothing was enqueued';
    end if;
  end loop;
  perform set_config('lock_timeout', v_timeout, true);
  return query
  select v_created, v_replaced, v_duplicates, v_dropped;
end
$$;
