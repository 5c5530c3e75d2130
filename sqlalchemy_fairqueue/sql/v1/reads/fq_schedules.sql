-- fq_schedules: up to p_limit schedules of a queue (null: all), in the order of channel and name, without the contents
-- of their messages. p_queue null: of all queues. p_channel, p_name: only these. p_after_channel, p_after_name: those
-- of the last row of the page before. Times are microseconds since the epoch; read_at: the clock's time; content_size:
-- in bytes.
-- Locks: none. Index: fq_schedule_name_key. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_schedules(
  p_queue text, p_channel text, p_name text, p_after_channel text, p_after_name text, p_limit integer
)
returns table (
  queue text, channel text, name text, cron text, timezone text, every bigint, catch_up text, jitter bigint, kind text,
  content_size integer, max_attempts integer, ordering_key text, in_code boolean, anchor_at bigint, done_until bigint,
  next_at bigint, due_at bigint, paused_at bigint, last_slot_at bigint, last_run_at bigint, last_message_id bigint,
  problem text, problem_at bigint, created_at bigint, changed_at bigint, read_at bigint
)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_number('fq_schedules has limit'::text, p_limit::bigint, 1::bigint, null::bigint)
  where p_limit is not null;
  perform fairqueue.fq_check_grant(
    array['producer', 'monitor', 'operator']::text[], p_queue,
    (case when num_nonnulls(p_channel) = 1 then array[p_channel] end)::text[]
  );
  return query
  select s.queue, s.channel, s.name, s.cron, s.timezone, s.every, s.catch_up, s.jitter, s.kind, octet_length(s.content),
    s.max_attempts, s.ordering_key, s.in_code, s.anchor_at, s.done_until, s.next_at, s.due_at, s.paused_at,
    s.last_slot_at, s.last_run_at, s.last_message_id, s.problem, s.problem_at, s.created_at, s.changed_at, fairqueue.fq_now()
  from fairqueue.fq_schedule s
  where (num_nulls(p_queue) = 1 or s.queue = p_queue)
    and (num_nulls(p_channel) = 1 or s.channel = p_channel)
    and (num_nulls(p_name) = 1 or s.name = p_name)
    and (s.channel, s.name) > (coalesce(p_after_channel, ''), coalesce(p_after_name, ''))
  order by s.queue, s.channel, s.name
  limit p_limit;
end
$$;
