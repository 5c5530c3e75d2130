-- The snapshot of the transaction, the time by the queue's clock, and the queues that record their history.
select
  pg_current_snapshot()::text as snapshot,
  fairqueue.fq_now() as now,
  array(
    select q.queue
    from fairqueue.fq_queue_settings(cast(null as text)) q
    where q.history
  ) as recorded
