-- Raise unless the schema holds the version.
  if v_version <> {version} then
    raise exception using errcode = 'QF004',
      message = format('schema %I holds fairqueue version %s, not {version}; '
        'bring it to version {version} first', v_schema, v_version);
  end if;
