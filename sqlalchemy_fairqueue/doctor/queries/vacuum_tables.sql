-- Dead rows, vacuums and settings of autovacuum of :tables: the table's own settings, else the server's.
select
  c.relname as table,
  coalesce(t.n_dead_tup, 0) as dead,
  coalesce(t.n_live_tup, 0) as live,
  greatest(t.last_vacuum, t.last_autovacuum) as vacuumed_at,
  clock_timestamp() - greatest(t.last_vacuum, t.last_autovacuum) as ago,
  coalesce(
    (
      select o.option_value::boolean
      from pg_options_to_table(c.reloptions) o
      where o.option_name = 'autovacuum_enabled'
    ),
    true
  ) as enabled,
  coalesce(
    (
      select o.option_value::float8
      from pg_options_to_table(c.reloptions) o
      where o.option_name = 'autovacuum_vacuum_scale_factor'
    ),
    current_setting('autovacuum_vacuum_scale_factor')::float8
  ) as factor,
  coalesce(
    (
      select o.option_value::bigint
      from pg_options_to_table(c.reloptions) o
      where o.option_name = 'autovacuum_vacuum_threshold'
    ),
    current_setting('autovacuum_vacuum_threshold')::bigint
  ) as threshold
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_stat_all_tables t on t.relid = c.oid
where n.nspname = :schema
  and c.relname = any(:tables)
  and c.relkind = 'r'
order by c.relname
