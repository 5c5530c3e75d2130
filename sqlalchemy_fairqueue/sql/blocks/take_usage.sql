-- Take back the usage of the schema that came with grants.
  for v_grant in
    execute format('select distinct r.oid::regrole as role from %I.fq_grant g join pg_roles r on r.oid = g.role '
      'where g.usage_given order by 1', v_schema)
  loop
    execute format('revoke usage on schema %I from %s', v_schema, v_grant.role);
  end loop;
