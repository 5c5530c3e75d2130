-- Take back the functions of a kind of work that was taken away, unless another row of the role in fq_grant stands for
-- them.
  for v_grant in
    execute format('select distinct p.oid::regprocedure as function, a.grantee::regrole as role '
      'from unnest($1, $2, $3) w(version, kind, name) '
      'join pg_proc p on p.pronamespace = $5 and p.proname = w.name '
      'cross join lateral aclexplode(p.proacl) a '
      'join pg_roles r on r.oid = a.grantee '
      'where w.version = $6 and (w.kind = $8 or $8 is null) '
      'and (a.grantee = $7 or $7 is null) and a.grantee <> p.proowner '
      'and ($7 is not null or exists (select from %1$I.fq_grant g where g.role = a.grantee and g.kind = w.kind)) '
      'and not exists (select from %1$I.fq_grant g join unnest($1, $2, $3) k(version, kind, name) '
      'on k.version = $4 and k.kind = g.kind where g.role = a.grantee and k.name = p.proname) '
      'order by 2, 1', v_schema)
    using {granted}, v_version, quote_ident(v_schema)::regnamespace, {before}, v_role, {kind}
  loop
    execute format('revoke execute on function %s from %s', v_grant.function, v_grant.role);
  end loop;
