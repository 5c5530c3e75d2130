-- Channels a queue that were served, and messages that were enqueued, more than :grace microseconds after now.
-- A service lies in the past, a rate owes its burst at most, and a message that was due when it was enqueued is not due
-- later. Next services, leases and other messages may lie ahead by any time. Reads every channel's state, and its
-- undelivered messages by their index; :queue null is all queues.
select
  c.queue,
  count(*) filter (where s.ahead > 0) as channels,
  coalesce(sum(m.messages), 0) as messages,
  greatest(max(s.ahead), max(m.ahead)) + :grace as ahead
from (
  select fairqueue.fq_now() + :grace as until
) n
cross join fairqueue.fq_channel c
join lateral (
  select greatest(s.last_dequeue_at, s.rate_at - s.rate_burst * s.rate_interval) - n.until as ahead
  from fairqueue.fq_channel_state s
  where s.channel_id = c.id
) s on true
cross join lateral (
  select
    count(*) as messages,
    max(m.dequeue_at) - n.until as ahead
  from fairqueue.fq_message m
  where m.channel_id = c.id
    and m.lease_id is null
    and m.dequeue_at > n.until
    and m.dequeue_at <= m.enqueued_at
) m
where (cast(:queue as text) is null or c.queue = :queue)
  and (s.ahead > 0 or m.messages > 0)
group by c.queue
order by c.queue
