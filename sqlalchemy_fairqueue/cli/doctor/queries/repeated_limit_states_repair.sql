-- Keeps the newest of several state rows of a shared limit, and of several shares of a queue in it.
delete from fairqueue.fq_limit_state s
where s.ctid <> (
  select n.ctid
  from fairqueue.fq_limit_state n
  where n.limit_name = s.limit_name
  order by n.row_version desc, n.ctid desc
  limit 1
);
delete from fairqueue.fq_limit_share h
where h.ctid <> (
  select n.ctid
  from fairqueue.fq_limit_share n
  where n.limit_name = h.limit_name
    and n.queue = h.queue
  order by n.row_version desc, n.ctid desc
  limit 1
)
