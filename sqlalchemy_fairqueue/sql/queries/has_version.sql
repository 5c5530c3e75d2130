-- Whether a schema has a function fq_version(). Only the catalog is asked: to call a function in somebody else's schema
-- needs a privilege on it.
select exists (
  select from pg_proc p
  join pg_namespace n on n.oid = p.pronamespace
  where n.nspname = :schema
    and p.proname = 'fq_version'
    and p.pronargs = 0
)
