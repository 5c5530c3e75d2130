-- Tables of the schema and privileges on them that the role lacks, of those asked for in :tables and :privileges.
-- Tables that the installed version does not have are left out. Reads the catalog alone.
select
  c.relname as table,
  r.privilege
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join unnest(cast(:tables as text[]), cast(:privileges as text[])) r(name, privilege) on r.name = c.relname
where n.nspname = :schema
  and c.relkind in ('r', 'p')
  and not has_table_privilege(c.oid, r.privilege)
order by c.relname, r.privilege
