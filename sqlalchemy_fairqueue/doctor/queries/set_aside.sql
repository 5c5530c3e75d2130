-- Channels that dequeues have paused over a message that they cannot deliver. Reads the states; :queue null is all
-- queues.
select s.queue, c.name as channel, s.problem
from fairqueue.fq_channel_state s
join fairqueue.fq_channel c on c.id = s.channel_id
where s.problem is not null
  and (cast(:queue as text) is null or s.queue = :queue)
order by s.queue, c.name
limit 100
