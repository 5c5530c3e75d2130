-- By channel, the attempts that ended from :since until before :until (microseconds): how many completed messages, how
-- many attempts, their time and cost; :queue null is all queues. Reads the days of the history in between.
select
  h.queue,
  h.channel,
  count(*) filter (where h.outcome = 'completed') as messages,
  count(*) as attempts,
  sum(h.finished_at - h.started_at)::bigint as time,
  sum(h.cost)::bigint as cost
from fairqueue.fq_history h
where h.finished_at >= :since
  and h.finished_at < :until
  and (cast(:queue as text) is null or h.queue = :queue)
group by h.queue, h.channel
order by h.queue, h.channel
