-- fq_stage_schema: the schema of the staging tables of loads: the name of the installation's schema with _stages,
-- shortened if PostgreSQL could not keep it.
-- Guarantees: one name an installation. It does not ask whether the schema exists. Locks: none. Index: none. Errors:
-- none.
create function fairqueue.fq_stage_schema()
returns text
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select case
    when octet_length(n.nspname) <= 56 then n.nspname || '_stages'
    else left(n.nspname, 11) || '_' || left(md5(n.nspname), 8) || '_stages'
  end
  from pg_type t
  join pg_namespace n on n.oid = t.typnamespace
  where t.oid = pg_typeof(null::fairqueue.fq_load)
$$;
