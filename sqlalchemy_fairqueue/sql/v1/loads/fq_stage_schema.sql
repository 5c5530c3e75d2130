-- fq_stage_schema: the schema of the staging tables of loads: the name of the installation's schema with _stages,
-- shortened if PostgreSQL could not keep it.
-- Guarantees: one name an installation. It does not ask whether the schema exists. Locks: none. Index: none. Errors:
-- none.
create function fairqueue.fq_stage_schema()
returns text
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_schema text := (
    select n.nspname
    from pg_type t
    join pg_namespace n on n.oid = t.typnamespace
    where t.oid = pg_typeof(null::fairqueue.fq_load)
  );
begin
  return case
    when octet_length(v_schema) <= 56 then v_schema || '_stages'
    else left(v_schema, 11) || '_' || left(md5(v_schema), 8) || '_stages'
  end;
end
$$;
