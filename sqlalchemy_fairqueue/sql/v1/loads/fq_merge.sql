-- fq_merge: enqueue what a bulk load has staged, once, in a READ COMMITTED transaction of its own, after
-- fq_make_stage_channels. p_attempts: the copies into the stage that count, with p_messages rows; p_rejected: rows that
-- were kept back. p_batch_id: the micro-batch of a stream (null: one load), of the checkpoint p_source. p_on_duplicate:
-- as in fq_enqueue.
-- Guarantees: all messages are added or none, with the job's row in fq_load; the same job, or an earlier batch, adds
-- nothing: merged is false, with the last counts. Messages of an ordering key are added as copied, those with a key
-- last. Memory does not grow with the load, but for channels and replacements. fq_make_load_groups makes groups
-- afterwards.
-- Locks: as fq_begin_load, then as an enqueue of these messages, or as fq_merge_in_order. Index: those of its steps.
-- Errors: QF001; QF002 a key is taken; QF005; QF006 the stage has other rows; 42P01; 42501; 55P03; 40P01; QF007.
create function fairqueue.fq_merge(
  p_queue text, p_job_id text, p_stage text, p_attempts bigint[], p_messages bigint, p_batch_id bigint default null,
  p_source text default null, p_on_duplicate text default 'skip', p_rejected bigint default 0,
  p_notify boolean default true
)
returns table (
  merged boolean, messages bigint, created bigint, replaced bigint, duplicates bigint, dropped bigint, rejected bigint
)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set work_mem = '64MB'
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_schema regnamespace := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_load));
  v_now bigint := fairqueue.fq_now();
  -- the rows of the stage that count, their counts, when a message is due, and the ids of the channels
  v_stage text;
  v_staged record;
  v_dequeue_at text := format('%s.fq_dequeue_at(%s::bigint, s.delay, s.at, s.priority, null::bigint)', v_schema, v_now);
  v_channels text;
  v_insert text;
  -- messages with keys need more than an insert; an insert is enough for them
  v_keys_in_order boolean;
  v_with_keys boolean;
  v_created bigint;
  v_replaced bigint := 0;
  v_duplicates bigint := 0;
  v_dropped bigint := 0;
begin
  perform fairqueue.fq_check_grant(array['loader']::text[], p_queue, null::text[]);
  if num_nulls(p_queue, p_job_id, p_stage, p_attempts, p_messages, p_rejected, p_on_duplicate) > 0
    or p_on_duplicate not in ('skip', 'raise', 'replace')
    or octet_length(p_job_id) not between 1 and 512
    or octet_length(p_queue) not between 1 and 512
    or least(p_messages, p_rejected, p_batch_id) < 0
  then
    raise exception 'fq_merge has queue %, job %, stage %, % messages, on_duplicate %',
        left(p_queue, 80), left(p_job_id, 80), left(p_stage, 80), p_messages, left(p_on_duplicate, 80)
      using errcode = 'QF001',
        hint = 'name the queue, the job (1 to 512 bytes), the stage, its attempts and the number of their rows; '
          'on_duplicate is skip, raise or replace';
  end if;
  return query
  select false, l.*
  from fairqueue.fq_begin_load(p_queue, p_job_id, p_batch_id, p_source, v_now) l;
  if found then
    return;
  end if;

  -- The headers of members name their group, as if they were enqueued one by one.
  v_stage := format(
    '(select g.attempt, g.channel, g.kind, g.content,'
    '  case'
    '    when g.group_id is null then g.headers'
    '    else coalesce(g.headers, ''{}''::jsonb) || jsonb_build_object(''group'', g.group_id)'
    '  end as headers,'
    '  g.delay, g.at, g.priority, g.key, g.max_attempts, g.cost, g.group_id, g.ordering_key, g.ordinal'
    '  from %s g where g.attempt = any (%L::bigint[]))',
    fairqueue.fq_find_stage(p_stage), p_attempts
  );
  v_staged := fairqueue.fq_count_stage(p_queue, p_job_id, p_messages, v_stage, v_dequeue_at, v_now);

  -- Messages that need more than an insert go through fq_enqueue. If one with a key does, all with keys do, since keys
  -- are taken in one order.
  v_keys_in_order := v_staged.keyed > 0 and (p_on_duplicate = 'replace' or v_staged.keyed_bounded > 0);
  v_with_keys := v_staged.keyed > 0 and not v_keys_in_order;
  v_channels := format('unnest(%L::text[], %L::bigint[])', v_staged.names, v_staged.ids);
  v_insert := format(
    'insert into %s.fq_message ('
    '  channel_id, kind, content, headers, dequeue_at, enqueued_at, key, priority, max_attempts, cost, group_id,'
    '  ordering_key'
    ' )'
    ' select c.id, s.kind, s.content, s.headers, %s, %s, s.key, s.priority, coalesce(s.max_attempts, 20),'
    '  s.cost, s.group_id, s.ordering_key'
    ' from %s s'
    ' join %s c(channel, id) on c.channel = s.channel'
    ' where c.id <> all (%L::bigint[])',
    v_schema, v_dequeue_at, v_now, v_stage, v_channels, v_staged.bounded
  );
  v_created := fairqueue.fq_merge_at_once(
    p_queue, p_job_id, v_insert, v_staged.is_ordered::boolean, v_staged.plain::bigint, v_with_keys,
    v_staged.ids::bigint[], v_staged.leasts::bigint[], v_staged.plains::bigint[], v_staged.bounded::bigint[]
  );
  if v_with_keys then
    v_duplicates := v_staged.plain + v_staged.keyed - v_created;
  end if;
  if v_staged.bounded <> '{}' or v_keys_in_order then
    select v_created + e.created, v_replaced + e.replaced, v_duplicates + e.duplicates, e.dropped
    into v_created, v_replaced, v_duplicates, v_dropped
    from fairqueue.fq_merge_in_order(
      p_queue, p_job_id, p_on_duplicate,
      format('%s s join %s c(channel, id) on c.channel = s.channel', v_stage, v_channels)::text,
      format('c.id = any (%L::bigint[]) or (s.key is not null and %L)', v_staged.bounded, v_keys_in_order)::text,
      v_keys_in_order
    ) e;
  end if;

  if v_duplicates > 0 and p_on_duplicate = 'raise' then
    raise exception '% of % messages of job % have a key that stands in their channel, or has come twice',
        v_duplicates, p_messages, left(p_job_id, 80)
      using errcode = 'QF002', hint = 'nothing was enqueued; let the job skip or replace them';
  end if;
  update fairqueue.fq_load l
  set batch_id = p_batch_id,
    messages = p_messages,
    created = v_created,
    replaced = v_replaced,
    duplicates = v_duplicates,
    dropped = v_dropped,
    rejected = p_rejected,
    committed_at = v_now
  where l.queue = p_queue
    and l.job_id = p_job_id;
  if p_notify and v_created + v_replaced > 0 then
    perform fairqueue.fq_wake(p_queue);
  end if;
  return query
  select true, p_messages, v_created, v_replaced, v_duplicates, v_dropped, p_rejected;
end
$$;
