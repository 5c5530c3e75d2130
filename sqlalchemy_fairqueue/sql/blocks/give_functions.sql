-- Grant the functions that the rows of fq_grant stand for and that are not granted yet: to one role, or to all.
  for v_grant in
    execute format('select p.oid::regprocedure as function, g.role '
      'from %I.fq_grant g '
      'join pg_roles r on r.oid = g.role '
      'join unnest($1, $2, $3) w(version, kind, name) on w.version = $4 and w.kind = g.kind '
      'join pg_proc p on p.pronamespace = $5 and p.proname = w.name '
      'where (g.role = $6 or $6 is null) '
      'and not exists (select from aclexplode(p.proacl) a where a.grantee = g.role) '
      'order by 2, 1', v_schema)
    using {granted}, v_version, quote_ident(v_schema)::regnamespace, v_role
  loop
    execute format('grant execute on function %s to %s', v_grant.function, v_grant.role);
  end loop;
