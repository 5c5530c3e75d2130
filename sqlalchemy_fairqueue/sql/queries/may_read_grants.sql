-- Whether the role may read the grants of an installation.
select has_function_privilege(p.oid, 'execute') and has_schema_privilege(n.oid, 'usage')
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname = :schema
  and p.proname = 'fq_grants'
  and p.pronargs = 0
