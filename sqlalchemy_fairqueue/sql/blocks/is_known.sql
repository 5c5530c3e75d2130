-- Raise unless this library knows the version.
  if v_version <> all (array[{versions}]) then
    raise exception using errcode = 'QF004',
      message = format('schema %I holds fairqueue version %s, which this library does not know; '
        'upgrade the library', v_schema, v_version);
  end if;
