-- Those of :tables that the role may read. Reads the catalog alone.
select c.relname
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema
  and c.relname = any(:tables)
  and has_table_privilege(c.oid, 'select')
