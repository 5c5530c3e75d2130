-- Waits of consumers for which no session listens; :queue null is all queues. The name of a listener's session has the
-- host and process of the worker. A generated name of a worker has them too, and so tells its listener. If the user
-- chose the worker's name, any listener may be the worker's own. A connection of a transaction pooler may have the name
-- of a listener and execute statements of others. So a session counts only if its last statement is a listener's, or
-- the role may not see the statement. Reads the leases and pg_stat_activity, where every role sees sessions' names.
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
