-- Shared limits with more than one state row (share_of null), or more than one share of a queue (share_of). Reads both
-- tables; :queue null is all queues, else the limits of that queue.
select r.limit_name, r.share_of, r.rows
from (
  select s.limit_name, null as share_of, count(*) as rows
  from fairqueue.fq_limit_state s
  group by s.limit_name
  union all
  select h.limit_name, h.queue, count(*)
  from fairqueue.fq_limit_share h
  group by h.limit_name, h.queue
) r
where r.rows > 1
  and (
    cast(:queue as text) is null
    or r.limit_name in (
      select o.limit_name
      from fairqueue.fq_limit_share o
      where o.queue = :queue
    )
  )
order by r.limit_name, r.share_of
