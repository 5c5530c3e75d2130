-- The configuration of a queue: one row, or none where it was never configured.
select
  q.defaults,
  q.max_concurrency,
  q.rate_interval,
  q.rate_burst,
  q.limits,
  q.history,
  q.history_retention,
  q.dead_letter_retention,
  q.dead_letter_retention_by_kind,
  q.forget_channels_after,
  q.fair_by,
  q.default_plan
from fairqueue.fq_queue_settings(cast(:queue as text)) q
