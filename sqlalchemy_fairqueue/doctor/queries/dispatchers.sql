-- Sessions and prepared transactions that have the dispatch row of a queue locked. While one has it, nobody else hears
-- the signals of the queue. If such a session itself waits for another session, then pid is the other session, and
-- waiting is the session that has the row.
-- Another role's session may hide its state and its age. A prepared transaction has no session. It is found by the lock
-- on its transaction id, and not by the virtual transaction of this lock, which changes with a restart of the server.
-- Reads fq_dispatch_holders, pg_locks, pg_stat_activity and pg_prepared_xacts; :queue null is all queues.
select
  g.queue,
  coalesce(b.pid, l.pid) as pid,
  g.holder,
  p.gid,
  coalesce(a.usename, p.owner) as role,
  a.application_name,
  a.state,
  a.backend_type is null as hidden,
  a.xact_start is null as idle,
  clock_timestamp() - coalesce(a.xact_start, a.state_change, p.prepared) as since,
  case when num_nonnulls(b.pid) = 1 then l.pid end as waiting
from fairqueue.fq_dispatch_holders(cast(:queue as text)) g
join pg_locks l on l.locktype = 'transactionid' and l.transactionid = g.holder and l.granted
left join lateral (
  select min(u.pid) as pid
  from unnest(pg_blocking_pids(l.pid)) u(pid)
  where u.pid > 0
) b on true
left join pg_stat_activity a on a.pid = coalesce(b.pid, l.pid)
left join lateral (
  select
    x.gid,
    x.owner,
    x.prepared
  from pg_prepared_xacts x
  where l.pid is null
    and x.transaction = g.holder
) p on true
where l.pid is not null or p.gid is not null
order by g.queue, l.pid, p.gid
