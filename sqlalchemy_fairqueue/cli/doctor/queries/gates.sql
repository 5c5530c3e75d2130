-- Sessions and prepared transactions that hold the gate of a queue: an advisory lock that every dequeue shares.
-- A row for each that holds it alone, or shares it while a session waits to have it alone: then no dequeue gets it.
-- Another role's session may hide its state and its age. A prepared transaction has no session: it is found by the lock
-- on its transaction id, whose virtual transaction is that of its session, and another one after a restart.
-- Reads pg_locks, pg_stat_activity, pg_prepared_xacts and the names of the queues; :queue null is all of them.
with gate as (
  select
    q.name as queue,
    fairqueue.fq_gate_key(q.name) as key
  from fairqueue.fq_queues() q(name)
  where cast(:queue as text) is null
    or q.name = :queue
),
attempt as (
  select
    (l.classid::bigint << 32) | l.objid::bigint as key,
    l.mode = 'ExclusiveLock' as alone,
    l.granted,
    l.pid,
    l.virtualtransaction
  from pg_locks l
  where l.locktype = 'advisory'
    and l.objsubid = 1
    and l.database = (
      select d.oid
      from pg_database d
      where d.datname = current_database()
    )
)
select
  g.queue,
  l.pid,
  l.alone,
  p.gid,
  coalesce(a.usename, p.owner) as role,
  a.application_name,
  a.state,
  a.backend_type is null as hidden,
  a.xact_start is null as idle,
  clock_timestamp() - coalesce(a.xact_start, a.state_change, p.prepared) as since,
  (
    select min(w.pid)
    from attempt w
    where w.key = l.key
      and w.alone
      and not w.granted
  ) as waiting
from gate g
join attempt l on l.key = g.key
left join pg_stat_activity a on a.pid = l.pid
left join lateral (
  select
    x.gid,
    x.owner,
    x.prepared
  from pg_prepared_xacts x
  join pg_locks t on t.locktype = 'transactionid' and t.transactionid = x.transaction
  where l.pid is null
    and t.pid is null
    and t.virtualtransaction = l.virtualtransaction
) p on true
where l.granted
  and (l.pid is not null or p.gid is not null)
  and (
    l.alone
    or exists (
      select
      from attempt w
      where w.key = l.key
        and w.alone
        and not w.granted
    )
  )
order by g.queue, l.pid, p.gid
