-- Other sessions of this database that hold a snapshot and hide its age from the role.
select
  a.pid,
  a.usename,
  a.backend_xmin::text as xmin,
  a.backend_xid::text as xid
from pg_stat_activity a
where a.pid <> pg_backend_pid()
  and (a.backend_xmin is not null or a.backend_xid is not null)
  and a.datname = current_database()
  and a.usesysid is not null
  and a.xact_start is null
  and a.backend_type is null
