-- See whether there is an installation whose fq_version() a role has dropped (v_nameless). Refuse an unreleased
-- version.
  v_nameless := to_regprocedure(format('%I.fq_version()', v_schema)) is null
    and to_regclass(format('%I.fq_message', v_schema)) is not null
    and exists (
      select from pg_proc p
      join pg_namespace n on n.oid = p.pronamespace
      where n.nspname = v_schema
        and p.proname = any (array['fq_enqueue', 'fq_dequeue', 'fq_complete'])
    );
  if (select p.prorettype from pg_proc p where p.oid = to_regprocedure(format('%I.fq_version()', v_schema)))
    = 'int4'::regtype
  then
    raise exception using errcode = 'QF004',
      message = format('schema %I {unreleased}; '
        'put op.create_fairqueue() into an Alembic migration and run it', v_schema);
  end if;
