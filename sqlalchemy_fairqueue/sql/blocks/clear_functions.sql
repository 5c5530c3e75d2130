-- Drop functions that have a name of ours but other arguments or another result: they cannot be replaced, and would be
-- found beside ours.
  for v_function in
    select p.oid
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    join (values
{expected}
    ) e(name, arguments, result) on e.name = p.proname
    where n.nspname = v_schema
      and (
        replace(pg_get_function_arguments(p.oid), quote_ident(n.nspname) || '.', ''),
        replace(pg_get_function_result(p.oid), quote_ident(n.nspname) || '.', '')
      ) is distinct from (e.arguments, e.result)
  loop
    execute format('drop function %s', v_function);
  end loop;
