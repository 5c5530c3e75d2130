-- The configuration of a queue: one row, or none where it was never configured.
select
  q.max_concurrency,
  q.rate_interval,
  q.rate_burst,
  q.weight,
  q.max_backlog,
  q.drop_when_full,
  q.has_policy,
  q.global_max_concurrency,
  q.history,
  q.history_retention
from fairqueue.fq_queue q
where q.name = :queue
