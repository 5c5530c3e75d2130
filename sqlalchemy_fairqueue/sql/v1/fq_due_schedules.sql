-- fq_due_schedules: the schedules of queues that are due now or within p_ahead microseconds, with what a worker needs
-- to find their slots: of each queue up to p_limit, the earliest first. read_at: the clock's time; content_size: in
-- bytes. Schedules from code are returned only to workers that have them: p_code_queues, p_code_channels and
-- p_code_names name those. Nothing is claimed: the first call of fq_run_slots runs a slot.
-- Locks: none. Index: fq_schedule_due_ix. Errors: QF001 bad argument; QF007.
create function fairqueue.fq_due_schedules(
  p_queues text[], p_code_queues text[], p_code_channels text[], p_code_names text[], p_ahead bigint, p_limit integer
)
returns table (
  id bigint, queue text, channel text, name text, cron text, timezone text, every bigint, catch_up text,
  revision bigint, anchor_at bigint, done_until bigint, due_at bigint, content_size integer, read_at bigint
)
language plpgsql
stable
security definer
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  perform fairqueue.fq_check_number(
    'fq_due_schedules has ahead'::text, p_ahead::bigint, 0::bigint, 3153600000000000::bigint
  );
  perform fairqueue.fq_check_number('fq_due_schedules has limit'::text, p_limit::bigint, 1::bigint, 100000::bigint);
  perform fairqueue.fq_check_grant(array['consumer']::text[], q.name, null::text[])
  from unnest(p_queues) q(name);
  return query
  select d.*, v_now
  from unnest(p_queues) q(name)
  cross join lateral (
    select s.id, s.queue, s.channel, s.name, s.cron, s.timezone, s.every, s.catch_up, s.revision, s.anchor_at,
      s.done_until, s.due_at, octet_length(s.content)
    from fairqueue.fq_schedule s
    where s.queue = q.name
      and s.due_at <= v_now + p_ahead
      and (
        not s.in_code
        or exists (
          select
          from unnest(p_code_queues, p_code_channels, p_code_names) c(queue, channel, name)
          where c.queue = s.queue
            and c.channel = s.channel
            and c.name = s.name
        )
      )
    order by s.queue, s.due_at
    limit p_limit
  ) d;
end
$$;
