-- Grant what note_privileges wrote down, and no more. A function that was made again has the privileges that the
-- database's default privileges say by now, which nobody has decided about it.
  for v_function in
    select p.oid::regprocedure as signature, noted.grants as wanted, {grants} as found
    from json_to_recordset(current_setting('fairqueue.privileges')::json) noted(name text, grants json)
    join pg_namespace n on n.nspname = v_schema
    join pg_proc p on p.pronamespace = n.oid and p.proname = noted.name
  loop
    continue when v_function.wanted::jsonb = v_function.found::jsonb;
    for v_grant in
      select g.grantee
      from json_to_recordset(v_function.found) g(grantee text)
    loop
      execute format('revoke all on function %s from %s', v_function.signature, v_grant.grantee);
    end loop;
    for v_grant in
      select g.grantee, g.option
      from json_to_recordset(v_function.wanted) g(grantee text, option text)
    loop
      execute format('grant execute on function %s to %s%s', v_function.signature, v_grant.grantee, v_grant.option);
    end loop;
  end loop;
