-- The slots of a schedule that were run lately, the newest first: up to :most of them, of the last week.
select sl.slot_at, sl.ran_at, sl.message_id
from fairqueue.fq_schedule s
join fairqueue.fq_schedule_slot sl on sl.schedule_id = s.id
where s.queue = :queue
  and s.channel = :channel
  and s.name = :name
order by sl.slot_at desc
limit :most
