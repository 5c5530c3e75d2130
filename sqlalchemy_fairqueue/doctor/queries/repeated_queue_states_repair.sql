-- For queues with more than one dispatch row, make one row anew. False: a consumer was at work there; run it again.
select fairqueue.fq_repair_queue(s.queue)
from fairqueue.fq_queue_state s
group by s.queue
having count(*) > 1
