-- Those of :tables that the role may not read. Tables that the installed version does not have are left out. Reads the
-- catalog alone.
select c.relname as table
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema
  and c.relname = any(cast(:tables as text[]))
  and c.relkind in ('r', 'p')
  and not has_table_privilege(c.oid, 'select')
order by c.relname
