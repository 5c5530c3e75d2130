-- A replication slot, and the server's WAL. Columns of a missing slot are null; on a standby there are no positions.
select s.plugin, s.database, s.wal_status, (s.confirmed_flush_lsn - '0/0')::bigint, (s.restart_lsn - '0/0')::bigint,
  current_database(), current_setting('wal_level'), pg_is_in_recovery(),
  pg_catalog.to_jsonb(s) ->> 'invalidation_reason',
  case when not pg_is_in_recovery() then (pg_current_wal_insert_lsn() - '0/0')::bigint end,
  case when not pg_is_in_recovery() then (pg_current_wal_flush_lsn() - '0/0')::bigint end
from (select) one
left join pg_replication_slots s on s.slot_name = %(slot)s
