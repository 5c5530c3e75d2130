-- Shared limits that have more than one row for a queue, or for themselves (queue ''). :queue null is all queues, else
-- the limits of that queue.
select h.limit_name, h.queue as share_of, count(*) as rows
from fairqueue.fq_limit_share h
where cast(:queue as text) is null
  or h.limit_name in (
    select o.limit_name
    from fairqueue.fq_limit_share o
    where o.queue = :queue
  )
group by h.limit_name, h.queue
having count(*) > 1
order by h.limit_name, h.queue
