-- By queue, what has times more than :grace microseconds after now: channels that were served, messages that were
-- enqueued, its limit and shared limits that were drawn from, plans that are spread to channels, keys that were taken
-- for a period, groups that have ended, schedules that were run.
-- These cannot lie ahead: a service lies in the past, a rate owes its burst at most, a key is taken for its period at
-- most, and a message that was due when it was enqueued is not due later. The times of next services, of leases and of
-- other messages may lie ahead.
-- Reads every channel's state, undelivered messages by their index, and keys whose period is not over; :queue null is
-- all queues.
select
  a.queue,
  coalesce(sum(a.number) filter (where a.kind = 'channel'), 0) as channels,
  coalesce(sum(a.number) filter (where a.kind = 'message'), 0) as messages,
  coalesce(sum(a.number) filter (where a.kind = 'limit'), 0) as limits,
  coalesce(sum(a.number) filter (where a.kind = 'plan'), 0) as plans,
  coalesce(sum(a.number) filter (where a.kind = 'key'), 0) as keys,
  coalesce(sum(a.number) filter (where a.kind = 'group'), 0) as groups,
  coalesce(sum(a.number) filter (where a.kind = 'schedule'), 0) as schedules,
  max(a.ahead) + :grace as ahead
from (
  select fairqueue.fq_now() + :grace as until
) n
cross join lateral (
  select
    c.queue,
    'channel' as kind,
    1 as number,
    greatest(s.last_dequeue_at, s.rate_at - s.rate_burst * s.rate_interval) - n.until as ahead
  from fairqueue.fq_channel_state s
  join fairqueue.fq_channel c on c.id = s.channel_id
  union all
  select
    c.queue,
    'message',
    m.number,
    m.ahead
  from fairqueue.fq_channel c
  cross join lateral (
    select
      count(*) as number,
      max(m.dequeue_at) - n.until as ahead
    from fairqueue.fq_message m
    where m.channel_id = c.id
      and m.lease_id is null
      and m.dequeue_at > n.until
      and m.dequeue_at <= m.enqueued_at
  ) m
  union all
  select
    s.queue,
    'limit',
    1,
    s.rate_at - s.rate_burst * s.rate_interval - n.until
  from fairqueue.fq_queue_state s
  where s.rate_interval > 0
  union all
  select
    q.name,
    'limit',
    1,
    greatest(
      case when l.rate_interval > 0 then s.rate_at - l.rate_burst * l.rate_interval end,
      max(h.contends_until)
    ) - n.until
  from fairqueue.fq_limit l
  join fairqueue.fq_limit_share s on s.limit_name = l.name and s.queue = ''
  join fairqueue.fq_queue q on l.name = any (q.limits)
  left join fairqueue.fq_limit_share h on h.limit_name = l.name
  group by q.name, l.name, s.rate_at
  union all
  select
    p.queue,
    'plan',
    1,
    p.spread_at - n.until
  from fairqueue.fq_plan p
  union all
  select
    k.queue,
    'key',
    1,
    k.expires_at - k.unique_for - n.until
  from fairqueue.fq_key_period k
  where k.expires_at > n.until
  union all
  select
    g.queue,
    'group',
    1,
    g.due_at - n.until
  from fairqueue.fq_group g
  where g.due_at > n.until
  union all
  select
    s.queue,
    'schedule',
    1,
    greatest(s.anchor_at, s.done_until) - n.until
  from fairqueue.fq_schedule s
) a
where a.ahead > 0
  and (cast(:queue as text) is null or a.queue = :queue)
group by a.queue
order by a.queue
