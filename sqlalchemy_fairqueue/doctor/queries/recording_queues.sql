-- How many queues record their history.
select count(*)
from fairqueue.fq_queue q
where q.history
