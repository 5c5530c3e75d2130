-- The time by the queue's clock, in microseconds since the epoch.
select fairqueue.fq_now()
