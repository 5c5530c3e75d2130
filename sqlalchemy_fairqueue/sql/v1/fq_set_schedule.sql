-- fq_set_schedule: make a schedule of a channel, or change the one of that name, in the caller's transaction. p_cron
-- with p_timezone, or p_every in microseconds; p_jitter in microseconds; the message as fq_enqueue takes it. p_policy:
-- the policy of the channel, if it is new when a slot comes and the queue has no defaults. p_in_code: code makes it
-- each time a worker starts. Returns 'created', 'changed' or 'same'.
-- Guarantees: the first slot is later than now. A change of cron, timezone or interval begins anew from now; other
-- changes leave the slots. A paused schedule stays paused. Nothing is enqueued here.
-- Locks: the schedule's row, until the transaction ends; waits for one that has it. Index: fq_schedule_name_key.
-- Errors: QF001 bad argument; 40001; QF007.
create function fairqueue.fq_set_schedule(
  p_queue text, p_channel text, p_name text, p_cron text, p_timezone text, p_every bigint, p_catch_up text,
  p_jitter bigint, p_kind text, p_content bytea, p_headers jsonb, p_max_attempts integer, p_policy jsonb,
  p_in_code boolean, p_ordering_key text default null
)
returns text
language plpgsql
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
  v_made boolean;
  v_changed boolean;
  v_argument text;
  v_value text;
begin
  perform fairqueue.fq_check_grant(array['producer']::text[], p_queue, array[p_channel]::text[]);
  perform fairqueue.fq_check_names(
    '{queue,channel,name,kind}'::text[], array[p_queue, p_channel, p_name, p_kind]::text[]
  );
  select c.argument, c.value into v_argument, v_value
  from (
    values
      (
        'cron', num_nonnulls(p_cron, p_every) <> 1 or octet_length(p_cron) not between 1 and 512,
        fairqueue.fq_shown(p_cron) || coalesce(', and every is ' || p_every, '')
      ),
      (
        'timezone', num_nonnulls(p_cron, p_timezone) = 1 or octet_length(p_timezone) not between 1 and 512,
        fairqueue.fq_shown(p_timezone)
      ),
      ('every', p_every not between 1000000 and 3153600000000000, p_every::text),
      ('jitter', (p_jitter between 0 and 3153600000000000) is not true, p_jitter::text),
      ('catch_up', (p_catch_up in ('skip', 'last', 'all')) is not true, fairqueue.fq_shown(p_catch_up)),
      ('content', (octet_length(p_content) <= 268435456) is not true, octet_length(p_content) || ' bytes long'),
      ('max_attempts', (p_max_attempts >= 1) is not true, p_max_attempts::text),
      ('in_code', p_in_code is null, null),
      ('ordering_key', octet_length(p_ordering_key) not between 1 and 512, fairqueue.fq_shown(p_ordering_key)),
      (
        'headers', not fairqueue.fq_headers_fit(fairqueue.fq_schedule_headers(p_headers, p_name, v_now)),
        'longer than 65,536 bytes with the name'
      )
  ) c(argument, is_bad, value)
  where c.is_bad
  limit 1;
  if found then
    raise exception 'schedule % of fq_set_schedule has a bad value: % is %',
        left(p_name, 80), v_argument, coalesce(v_value, 'null')
      using errcode = 'QF001',
        hint = 'give cron and timezone of up to 512 bytes, or every from 1000000 microseconds on; catch_up skip, last '
          'or all; jitter from 0 microseconds on; a content of at most 256 MB; headers of at most 65,536 bytes with '
          'the name; max_attempts >= 1; an ordering key of up to 512 bytes';
  end if;

  insert into fairqueue.fq_schedule as s (
    queue, channel, name, cron, timezone, every, catch_up, jitter, kind, content, headers, max_attempts, policy,
    in_code, anchor_at, done_until, due_at, created_at, changed_at,
    ordering_key
  )
  values (
    p_queue, p_channel, p_name, p_cron, p_timezone, p_every, p_catch_up, p_jitter, p_kind, p_content, p_headers,
    p_max_attempts, p_policy, p_in_code, v_now, v_now, v_now, v_now, v_now, p_ordering_key
  )
  on conflict (queue, channel, name) do update
  set cron = excluded.cron,
    timezone = excluded.timezone,
    every = excluded.every,
    catch_up = excluded.catch_up,
    jitter = excluded.jitter,
    kind = excluded.kind,
    content = excluded.content,
    headers = excluded.headers,
    max_attempts = excluded.max_attempts,
    policy = excluded.policy,
    in_code = excluded.in_code,
    ordering_key = excluded.ordering_key,
    revision = s.revision + 1,
    (anchor_at, done_until, next_at) = (
      select case when t.same then s.anchor_at else v_now end, case when t.same then s.done_until else v_now end,
        case when t.same then s.next_at end
      from (
        select (s.cron, s.timezone, s.every) is not distinct from (p_cron, p_timezone, p_every) as same
      ) t
    ),
    due_at = case when num_nulls(s.paused_at) = 1 then v_now end,
    problem = null,
    problem_at = null,
    changed_at = v_now
  where (
      s.cron, s.timezone, s.every, s.catch_up, s.jitter, s.kind, s.content, s.headers, s.max_attempts, s.policy,
      s.in_code, s.ordering_key
    ) is distinct from (
      excluded.cron, excluded.timezone, excluded.every, excluded.catch_up, excluded.jitter, excluded.kind,
      excluded.content, excluded.headers, excluded.max_attempts, excluded.policy, excluded.in_code,
      excluded.ordering_key
    )
  returning s.xmax = 0, true into v_made, v_changed;
  return case when v_made then 'created' when v_changed then 'changed' else 'same' end;
end
$$;
