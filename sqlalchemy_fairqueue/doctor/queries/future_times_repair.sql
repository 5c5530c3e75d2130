-- Bring times that lie in the future, and should not, back to now. To be pasted while no worker runs.
-- Leases expire now. Messages are due now, and one signal for each of their channels says so. Channels, rates, limits,
-- plans and schedules go on from now, and periods of keys begin now. A slot of a schedule that was run stays so.
update fairqueue.fq_lease
set expires_at = least(expires_at, fairqueue.fq_now()),
  waiting_until = null;

with moved as (
  update fairqueue.fq_message
  set enqueued_at = n.now,
    dequeue_at = n.now
  from (
    select fairqueue.fq_now() as now
  ) n
  where enqueued_at > n.now
    and dequeue_at between n.now and enqueued_at
  returning channel_id, dequeue_at, id
)
insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id)
select
  c.queue,
  c.id,
  min(m.dequeue_at),
  min(m.id)
from moved m
join fairqueue.fq_channel c on c.id = m.channel_id
group by c.queue, c.id;

update fairqueue.fq_channel_state
set row_version = row_version + 1,
  last_dequeue_at = least(last_dequeue_at, n.now),
  rate_at = least(rate_at, n.now + rate_burst * rate_interval),
  ready_tag = null,
  due_at = case when paused_at is null then greatest(head_dequeue_at, 0) end
from (
  select fairqueue.fq_now() as now
) n
where last_dequeue_at > n.now
  or rate_at > n.now + rate_burst * rate_interval;

update fairqueue.fq_queue_state
set row_version = row_version + 1,
  rate_at = least(rate_at, n.now + rate_burst * rate_interval),
  due_floor = 0,
  swept_at = 0
from (
  select fairqueue.fq_now() as now
) n;

update fairqueue.fq_limit_share s
set row_version = s.row_version + 1,
  rate_at = n.now + l.rate_burst * l.rate_interval
from fairqueue.fq_limit l
cross join (
  select fairqueue.fq_now() as now
) n
where l.name = s.limit_name
  and s.queue = ''
  and s.rate_at > n.now + l.rate_burst * l.rate_interval;

update fairqueue.fq_limit_share
set row_version = row_version + 1,
  contends_until = 0
where contends_until > 0;

update fairqueue.fq_plan
set spread_at = 0
where spread_at > fairqueue.fq_now();

update fairqueue.fq_key_period
set expires_at = n.now + unique_for
from (
  select fairqueue.fq_now() as now
) n
where expires_at > n.now + unique_for;

update fairqueue.fq_group
set due_at = n.now
from (
  select fairqueue.fq_now() as now
) n
where due_at > n.now;

update fairqueue.fq_schedule
set revision = revision + 1,
  anchor_at = least(anchor_at, n.now),
  done_until = least(done_until, n.now),
  next_at = null,
  due_at = case when paused_at is null then n.now end
from (
  select fairqueue.fq_now() as now
) n
where greatest(anchor_at, done_until) > n.now;
