-- fq_count_stage: count the messages that a bulk load has staged: without a key (plain), with one (keyed), and with one
-- in a bounded channel (keyed_bounded). Here a channel counts as bounded if its messages need more than an insert
-- (fq_takes_any), or some have a priority and are due later. bounded: the ids of these channels. By channel: names,
-- ids; plains: its messages without a key; leasts: when the first of these is due. is_ordered: some message has an
-- ordering key. p_stage: what to select the messages from; p_dequeue_at: when a message s is due; both in SQL.
-- Guarantees: p_messages messages are staged, and their channels are there.
-- Locks: none. Index: fq_channel_queue_name_key, fq_channel_state_newest_ix. Errors: QF006 there are not so many; QF001
-- a channel is not there.
create function fairqueue.fq_count_stage(
  p_queue text, p_job_id text, p_messages bigint, p_stage text, p_dequeue_at text, p_now bigint,
  out plain bigint, out keyed bigint, out keyed_bounded bigint, out bounded bigint[], out names text[],
  out ids bigint[], out plains bigint[], out leasts bigint[], out is_ordered boolean
)
language plpgsql
as $$
declare
  v_schema regnamespace := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_load));
  v_messages bigint;
  v_missing text;
begin
  execute format(
    'select coalesce(sum(s.messages), 0), coalesce(sum(s.plain) filter (where not n.bounded), 0),'
    '  coalesce(sum(s.messages - s.plain), 0),'
    '  coalesce(sum(s.messages - s.plain) filter (where n.bounded), 0),'
    '  coalesce(array_agg(n.id) filter (where n.bounded), array[]::bigint[]),'
    '  min(s.channel) filter (where n.id is null), array_agg(s.channel), array_agg(n.id), array_agg(s.plain),'
    '  array_agg(s.least), coalesce(sum(s.ordered), 0) > 0'
    ' from ('
    '   select s.channel, count(*) as messages, count(*) filter (where s.key is null) as plain,'
    '     min(%s) filter (where s.key is null) as least, count(s.ordering_key) as ordered,'
    '     bool_or(s.priority is not null and (s.delay > 0 or s.at > %s) is true) as promotable'
    '   from %s s'
    '   group by s.channel'
    ' ) s'
    ' left join lateral ('
    '   select c.id, not %s.fq_takes_any(n.*, true::boolean) or s.promotable as bounded'
    '   from %s.fq_channel c'
    '   cross join lateral %s.fq_newest_state(c.id::bigint) n'
    '   where c.queue = %L and c.name = s.channel'
    ' ) n on true',
    p_dequeue_at, p_now, p_stage, v_schema, v_schema, v_schema, p_queue
  )
  into v_messages, plain, keyed, keyed_bounded, bounded, v_missing, names, ids, plains, leasts, is_ordered;
  if v_messages <> p_messages then
    raise exception 'the stage of job % has % of % messages', left(p_job_id, 80), v_messages, p_messages
      using errcode = 'QF006',
        hint = 'a crash of the server empties what was staged, and nothing was enqueued; run the job again';
  end if;
  if v_missing is not null then
    raise exception 'channel % of queue % does not exist', left(v_missing, 80), p_queue
      using errcode = 'QF001', hint = 'call fq_make_stage_channels before, and do not delete channels that are in use';
  end if;
end
$$;
