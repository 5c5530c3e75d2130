-- Grant a role a kind of work: its row, and the usage of the schema.
  v_role := to_regrole(quote_ident({role}));
  if v_role is null then
    raise exception using errcode = 'undefined_object',
      message = format('role %I does not exist; create it before its grant: create role %I', {role}, {role});
  end if;
  v_usable := has_schema_privilege(v_role, v_schema, 'usage');
  if not v_usable then
    execute format('grant usage on schema %I to %s', v_schema, v_role);
  end if;
  execute format('insert into %I.fq_grant as g (role, kind, queues, channels, usage_given) values ($1, $2, $3, $4, $5) '
    'on conflict (role, kind) do update set queues = excluded.queues, channels = excluded.channels, '
    'usage_given = g.usage_given or excluded.usage_given', v_schema)
  using v_role, {kind}, {queues}, {channels}, not v_usable;
