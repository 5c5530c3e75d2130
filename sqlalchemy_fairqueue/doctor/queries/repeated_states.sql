-- By queue, channels with more than one state row. Reads the index of these rows; :queue null is all queues.
select s.queue, array_agg(s.channel_id order by s.channel_id) as channel_ids
from (
  select c.queue, c.channel_id
  from fairqueue.fq_channel_state c
  where cast(:queue as text) is null or c.queue = :queue
  group by c.queue, c.channel_id
  having count(*) > 1
) s
group by s.queue
order by s.queue
