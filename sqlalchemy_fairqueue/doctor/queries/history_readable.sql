-- Whether the role may read the history: one row or none. Reads the catalog alone.
select has_table_privilege(c.oid, 'select')
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema
  and c.relname = 'fq_history'
