-- fq_merge_at_once: add the messages of a bulk load in channels that are not bounded (fq_count_stage): those without a
-- key, and with p_with_keys those whose key is free. Returns how many were added. p_insert: the statement that adds
-- them, without its last conditions; p_is_ordered: add those without a key as they were copied; p_plain: how many have
-- no key; p_ids, p_leasts, p_plains, p_bounded: as fq_count_stage returns them.
-- Guarantees: all without a key are added. A channel gets one signal for these and one for those with a key. The former
-- names an id below all of the load's: to return what is added would cost a sixth more, and the stage tells the rest of
-- the signal.
-- Locks: keys, in the order (channel, key): waits for a transaction that is adding one. Index: fq_message_key.
-- Errors: QF006 somebody changes the stage.
create function fairqueue.fq_merge_at_once(
  p_queue text, p_job_id text, p_insert text, p_is_ordered boolean, p_plain bigint, p_with_keys boolean,
  p_ids bigint[], p_leasts bigint[], p_plains bigint[], p_bounded bigint[]
)
returns bigint
language plpgsql
as $$
declare
  v_schema regnamespace := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_load));
  v_least_id bigint;
  v_added bigint;
  v_keyed bigint := 0;
begin
  if p_plain > 0 then
    v_least_id := nextval(pg_get_serial_sequence(v_schema || '.fq_message', 'id'));
    -- In the order of the index on (channel_id, dequeue_at), which then costs least.
    execute format(
      '%s and s.key is null order by c.id%s', p_insert, case when p_is_ordered then ', s.ordinal' else '' end
    );
    get diagnostics v_added = row_count;
    if v_added <> p_plain then
      raise exception '% of % messages without a key of job % could be added', v_added, p_plain, left(p_job_id, 80)
        using errcode = 'QF006',
          hint = 'somebody changes the stage or has a trigger on the messages; run the job again without';
    end if;
    insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added)
    select p_queue, u.channel_id, u.least, v_least_id, u.messages
    from unnest(p_ids, p_leasts, p_plains) u(channel_id, least, messages)
    where u.messages > 0
      and u.channel_id <> all (p_bounded);
  end if;
  if p_with_keys then
    execute format(
      'with added as ('
      '  %s and s.key is not null order by s.channel, s.key'
      '  on conflict (channel_id, key) where key is not null do nothing'
      '  returning channel_id, dequeue_at, id'
      '), told as ('
      '  insert into %s.fq_signal (queue, channel_id, dequeue_at, message_id, added)'
      '  select %L, a.channel_id, min(a.dequeue_at), min(a.id), count(*)'
      '  from added a'
      '  group by a.channel_id'
      '  returning added'
      ') select coalesce(sum(t.added), 0) from told t',
      p_insert, v_schema, p_queue
    )
    into v_keyed;
  end if;
  return p_plain + v_keyed;
end
$$;
