-- Sessions and prepared transactions that have locked the gate of a queue: all of its rows (alone), or one of them, as
-- a dequeue does, while another session waits for it: then the queue delivers nothing. Also those that attend to a
-- queue: meanwhile nobody else hears its signals. Another role's session may hide its state and its age. A prepared
-- transaction has no session: it is found by the lock on its transaction id. Its virtual transaction is that of the
-- session that prepared it, and another one after a restart.
-- Reads fq_gate_holders, pg_locks, pg_stat_activity and pg_prepared_xacts; :queue null is all queues.
select
  g.queue,
  l.pid,
  g.holder,
  g.alone,
  p.gid,
  coalesce(a.usename, p.owner) as role,
  a.application_name,
  a.state,
  a.backend_type is null as hidden,
  a.xact_start is null as idle,
  clock_timestamp() - coalesce(a.xact_start, a.state_change, p.prepared) as since,
  w.pid as waiting
from fairqueue.fq_gate_holders(cast(:queue as text)) g
join pg_locks l on l.locktype = 'transactionid' and l.transactionid = g.holder and l.granted
left join pg_stat_activity a on a.pid = l.pid
left join lateral (
  select
    x.gid,
    x.owner,
    x.prepared
  from pg_prepared_xacts x
  where l.pid is null
    and x.transaction = g.holder
) p on true
left join lateral (
  select min(b.pid) as pid
  from pg_locks b
  where b.locktype = 'transactionid'
    and b.transactionid = g.holder
    and not b.granted
) w on true
where (l.pid is not null or p.gid is not null)
  and (
    w.pid is not null
    or (
      (g.alone or g.attends)
      and not exists (
        select
        from pg_locks b
        where b.pid = l.pid
          and b.locktype = 'transactionid'
          and not b.granted
      )
    )
  )
order by g.queue, l.pid, p.gid
