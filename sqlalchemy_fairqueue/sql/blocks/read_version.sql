-- Read the version that the schema holds; raise if it holds none.
  if to_regprocedure(format('%I.fq_version()', v_schema)) is null then
    raise exception using errcode = 'QF004',
      message = format('fairqueue is not installed in schema %I; '
        'name the schema that op.create_fairqueue() was given', v_schema);
  end if;
  execute format('select %I.fq_version()', v_schema) into v_version;
