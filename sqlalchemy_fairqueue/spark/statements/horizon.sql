-- Which history the connection reads, and the snapshot of this statement. On a server that was just promoted, the last
-- checkpoint still has the previous timeline. So on a primary, the name of its WAL file gives the timeline.
select s.system_identifier::text,
  case when pg_is_in_recovery() then c.timeline_id
    else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint end,
  (select d.oid::bigint from pg_database d where d.datname = current_database()),
  to_regclass(%(history)s)::oid::bigint,
  pg_current_snapshot()::text,
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint
from pg_control_system() s, pg_control_checkpoint() c
