-- Shared limits with more than one state row, or more than one share of a queue. Reads both tables; :queue null is all
-- queues, else the limits of that queue.
select r.limit_name, max(r.rows) as rows
from (
  select s.limit_name, count(*) as rows
  from fairqueue.fq_limit_state s
  group by s.limit_name
  union all
  select h.limit_name, count(*)
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
group by r.limit_name
order by r.limit_name
