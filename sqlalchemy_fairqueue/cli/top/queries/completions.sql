-- Completions a channel that were committed between the snapshot :before and the present one, each counted once.
select
  h.queue,
  h.channel,
  h.attempts
from fairqueue.fq_completions(cast(:before as text), cast(:queues as text[])) h
