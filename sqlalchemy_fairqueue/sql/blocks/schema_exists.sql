-- Raise unless the schema exists.
  if v_schema is null then
    raise exception using errcode = 'QF004',
      message = format('the connection has no default schema: its search_path (%s) names none that exists; '
        'create the schema before, or name one with schema=', v_path);
  end if;
  if not exists (select from pg_namespace n where n.nspname = v_schema) then
    raise exception using errcode = 'QF004',
      message = format('schema %I does not exist; '
        'create it before: op.execute(sqlalchemy.schema.CreateSchema(...))', v_schema);
  end if;
