-- Waits of consumers for which no session listens; :queue null is all queues. The name of a worker's listener has its
-- host and process, and so has the worker's name, unless it was given another one: then any listener may be its own.
-- Connections of a transaction pooler may have the name of a listener and execute statements of others: a session
-- counts only if its last statement is one of a listener's, or the role may not see it. Reads the leases and
-- pg_stat_activity, whose names of sessions every role may see.
select
  w.id,
  w.queue,
  w.consumer,
  w.left_for
from (
  select
    e.id,
    e.queue,
    e.consumer,
    e.waiting_until - fairqueue.fq_now() as left_for,
    regexp_match(e.consumer, '^(.*):([0-9]+):[0-9a-f]{8}$') as process
  from fairqueue.fq_lease e
  where e.waiting_until > fairqueue.fq_now()
    and (cast(:queue as text) is null or e.queue = :queue)
) w
where not exists (
  select
  from pg_stat_activity a
  where a.datname = current_database()
    and starts_with(a.application_name, 'fairqueue listener ')
    and (a.query ~* 'listen' or coalesce(a.query, '') in ('', '<insufficient privilege>'))
    and (
      w.process is null
      or a.application_name = left(
        'fairqueue listener ' || w.process[2] || '@' || regexp_replace(w.process[1], '[^a-zA-Z0-9_.-]', '_', 'g'), 63
      )
    )
)
order by w.queue, w.consumer, w.id
