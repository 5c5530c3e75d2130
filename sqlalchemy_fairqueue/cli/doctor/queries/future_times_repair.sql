-- Brings leases, messages and channels back from times that are to come. To be pasted while no worker runs.
-- Leases expire now. Messages are due now, and a signal a channel says so. Channels and their rates go on from now.
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
  next_dequeue_at = case
    when paused_at is null and head_dequeue_at is not null
    then greatest(
      head_dequeue_at,
      least(last_dequeue_at, n.now),
      least(rate_at, n.now + rate_burst * rate_interval) - (rate_burst - 1) * rate_interval
    )
  end
from (
  select fairqueue.fq_now() as now
) n
where last_dequeue_at > n.now
  or rate_at > n.now + rate_burst * rate_interval;
