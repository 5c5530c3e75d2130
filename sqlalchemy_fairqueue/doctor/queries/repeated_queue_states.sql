-- Queues with more than one dispatch row. Reads the index of these rows; :queue null is all queues.
select s.queue, count(*) as rows
from fairqueue.fq_queue_state s
where cast(:queue as text) is null or s.queue = :queue
group by s.queue
having count(*) > 1
order by s.queue
