-- Make the schema of the stages if it is missing; warn if the role may not.
  v_stages := {name};
  select pg_get_userbyid(c.relowner) into v_owner
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = v_schema
    and c.relname = 'fq_message';
  begin
    if not exists (select from pg_namespace n where n.nspname = v_stages) then
      execute format('create schema %I authorization %I', v_stages, v_owner);
    end if;
    if not has_schema_privilege('public', v_stages, 'usage') then
      execute format('grant usage on schema %I to public', v_stages);
    end if;
  exception when insufficient_privilege then
    raise warning 'bulk loads need a schema % of role %, and role % may not make it', v_stages, v_owner, current_user
      using hint = format('let a role that may run: create schema %I authorization %I; '
        'grant usage on schema %I to public', v_stages, v_owner, v_stages);
  end;
