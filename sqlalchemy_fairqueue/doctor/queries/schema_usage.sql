-- The current role, and whether it may use the schema: one row. Reads the catalog alone.
select
  current_user as name,
  has_schema_privilege(n.oid, 'usage') as usable
from pg_namespace n
where n.nspname = :schema
