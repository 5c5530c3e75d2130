-- By queue, leases that expired more than :grace microseconds ago and still hold messages; :queue null is all queues.
-- Reads the leases, and of each at most one message by the index on lease_id.
select
  l.queue,
  count(*) as leases,
  fairqueue.fq_now() - min(l.expires_at) as overdue
from fairqueue.fq_lease l
where l.expires_at < fairqueue.fq_now() - :grace
  and exists (
    select
    from fairqueue.fq_message m
    where m.lease_id = l.id
  )
  and (cast(:queue as text) is null or l.queue = :queue)
group by l.queue
order by l.queue
