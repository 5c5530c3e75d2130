-- Schedules that have a problem, or have been due for more than five minutes; :queue null is all queues.
select s.queue, s.channel, s.name, s.problem
from fairqueue.fq_schedules(cast(:queue as text), null::text, null::text, null::text, null::text, 100000) s
where s.problem is not null
  or (s.due_at < s.read_at - 300000000 and s.paused_at is null)
order by s.queue, s.channel, s.name
