-- For channels with more than one state row, make one row anew.
select fairqueue.fq_repair_channel(s.queue, s.channel_id)
from fairqueue.fq_channel_state s
group by s.queue, s.channel_id
having count(*) > 1
