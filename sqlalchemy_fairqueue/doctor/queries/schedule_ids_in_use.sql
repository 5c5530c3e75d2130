-- The greatest id of the schedules, null if there is none.
select max(s.id)
from fairqueue.fq_schedule s
