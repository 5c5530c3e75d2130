-- Keep the newest of several rows that a shared limit has for a queue, or for itself.
delete from fairqueue.fq_limit_share h
where h.ctid <> (
  select n.ctid
  from fairqueue.fq_limit_share n
  where n.limit_name = h.limit_name
    and n.queue = h.queue
  order by n.row_version desc, n.ctid desc
  limit 1
)
