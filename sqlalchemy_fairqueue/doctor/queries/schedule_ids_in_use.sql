-- The greatest id of the schedules, null without any.
select max(s.id)
from fairqueue.fq_schedule s
