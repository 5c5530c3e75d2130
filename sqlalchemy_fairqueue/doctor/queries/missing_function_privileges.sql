-- Those of :functions that the role may not execute, with their parameters. Reads the catalog alone.
select p.oid::regprocedure::text as function
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
where n.nspname = :schema
  and p.proname = any(cast(:functions as text[]))
  and not has_function_privilege(p.oid, 'execute')
order by function
