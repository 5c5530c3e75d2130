-- The functions of fairqueue that the role may not execute. Reads the catalog alone.
select p.oid::regprocedure::text as function
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
where n.nspname = :schema
  and starts_with(p.proname, 'fq_')
  and not has_function_privilege(p.oid, 'execute')
order by function
