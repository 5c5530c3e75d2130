-- The configuration of a queue: one row, or none where it was never configured.
select
  q.default_max_concurrency,
  q.default_rate_interval,
  q.default_rate_burst,
  q.default_weight,
  q.default_max_backlog,
  q.default_drop_when_full,
  q.has_defaults,
  q.max_concurrency,
  q.history,
  q.history_retention
from fairqueue.fq_queue q
where q.name = :queue
