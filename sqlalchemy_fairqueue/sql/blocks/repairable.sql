-- Raise unless the schema holds the version, or holds its tables and no fq_version().
  if v_nameless then
    select array_agg(c.relname::text order by c.relname collate "C") into v_tables
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = v_schema
      and c.relkind in ('r', 'p')
      and c.relname = any (array[{known}]);
    if v_tables <> array[{tables}] then
      raise exception using errcode = 'QF004',
        message = format('schema %I holds fairqueue without its function fq_version(), and the tables %s, which are '
          'not those of version {version}; name the version that was installed',
          v_schema, array_to_string(v_tables, ', '));
    end if;
  else
{installed}
  end if;
