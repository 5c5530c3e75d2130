-- The 20 other sessions with the oldest snapshots that hold vacuum back in this database. Snapshots of other databases
-- do not count; those of walsenders do. Another role's session may hide its age and its type: if the type is hidden, a
-- session without a role is an autovacuum worker, and one without a database a walsender.
select
  a.pid,
  a.usename,
  a.application_name,
  a.state,
  a.backend_type,
  clock_timestamp() - a.xact_start as open_for,
  greatest(age(a.backend_xmin), age(a.backend_xid)) as transactions
from pg_stat_activity a
where a.pid <> pg_backend_pid()
  and (a.backend_xmin is not null or a.backend_xid is not null)
  and (
    a.datname = current_database()
    or a.backend_type = 'walsender'
    or (a.backend_type is null and a.datid is null)
  )
  and (
    a.backend_type <> 'autovacuum worker'
    or (a.backend_type is null and a.usesysid is not null)
  )
order by transactions desc
limit 20
