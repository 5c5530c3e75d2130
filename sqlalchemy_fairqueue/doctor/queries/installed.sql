-- The schema that holds fairqueue, and whether the current role may ask for its version: one row or none.
-- Without :schema it is the first one on the search_path. Reads the catalog alone.
select
  n.nspname as schema,
  has_schema_privilege(n.oid, 'usage') as usable,
  has_function_privilege(p.oid, 'execute') as executable
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
where p.proname = 'fq_version'
  and p.pronargs = 0
  and case
    when cast(:schema as text) is null then pg_function_is_visible(p.oid)
    else n.nspname = :schema
  end
