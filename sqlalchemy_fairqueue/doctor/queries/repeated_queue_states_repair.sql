-- Keep the newest of several dispatch rows of a queue.
delete from fairqueue.fq_queue_state s
where s.ctid <> (
  select n.ctid
  from fairqueue.fq_queue_state n
  where n.queue = s.queue
  order by n.row_version desc, n.ctid desc
  limit 1
)
