-- fq_merge_plain: add the messages of a bulk load that have no key and whose channel is not bounded, and a signal a
-- channel. p_insert: the statement that adds them, without its last conditions. p_first_row: the first of them,
-- p_plain: how many they are. p_ids, p_leasts, p_plains, p_bounded: as fq_count_stage returns them.
-- Guarantees: all of them are added. A signal names an id that is not above any of its channel's: to return what is
-- added would cost a sixth more, and the rest of the signals is known from the stage, so one message goes first.
-- Locks: none that another transaction could wait for. Index: none. Errors: QF006 somebody changes the stage.
create function fairqueue.fq_merge_plain(
  p_queue text,
  p_job_id text,
  p_insert text,
  p_first_row tid,
  p_plain bigint,
  p_ids bigint[],
  p_leasts bigint[],
  p_plains bigint[],
  p_bounded bigint[]
)
returns void
language plpgsql
volatile
as $$
declare
  v_first_id bigint;
  v_added bigint;
begin
  execute format('%s and s.row = %L::tid returning id', p_insert, p_first_row) into v_first_id;
  -- In the order of the index on (channel_id, dequeue_at), which then costs least.
  execute format('%s and s.key is null and s.row <> %L::tid order by c.id', p_insert, p_first_row);
  get diagnostics v_added = row_count;
  v_added := v_added + num_nonnulls(v_first_id);
  if v_added <> p_plain then
    raise exception '% of % messages without a key of job % could be added', v_added, p_plain, left(p_job_id, 80)
      using errcode = 'QF006',
        hint = 'somebody changes the stage or has a trigger on the messages; run the job again without';
  end if;
  insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added)
  select p_queue, u.channel_id, u.least, v_first_id, u.messages
  from unnest(p_ids, p_leasts, p_plains) u(channel_id, least, messages)
  where u.messages > 0
    and u.channel_id <> all (p_bounded);
end
$$;
