-- Take a kind of work from a role: its row, and the usage of the schema with the last one.
  v_role := to_regrole(quote_ident({role}));
  execute format('select bool_or(g.usage_given) from %I.fq_grant g where g.role = $1', v_schema)
    into v_usable using v_role;
  execute format('delete from %I.fq_grant g where (g.kind = $2 or $2 is null) '
    'and (g.role = $1 or not exists (select from pg_roles r where r.oid = g.role))', v_schema)
    using v_role, {kind};
  if v_role is null then
    raise notice 'role % does not exist; grants of roles that were dropped are gone', {role};
  elsif v_usable then
    execute format('update %I.fq_grant set usage_given = true where role = $1', v_schema) using v_role;
    execute format('select not exists (select from %I.fq_grant g where g.role = $1)', v_schema)
      into v_usable using v_role;
    if v_usable then
      execute format('revoke usage on schema %I from %s', v_schema, v_role);
    end if;
  end if;
