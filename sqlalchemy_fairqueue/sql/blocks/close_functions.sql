-- Take functions away from PUBLIC. The functions run with the rights of their owner, which is that of the tables,
-- whoever migrates.
  for v_made in
    select format('function %s', p.oid::regprocedure) as name, p.proowner = m.relowner as owned,
      pg_get_userbyid(m.relowner) as owner
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    join pg_class m on m.relnamespace = n.oid and m.relname = 'fq_message'
    where n.nspname = v_schema
      and p.proname = any (array[{functions}])
      and pg_has_role(p.proowner, 'usage')
    order by p.proname
  loop
    execute format('revoke all on %s from public', v_made.name);
    if not v_made.owned then
      begin
        execute format('alter %s owner to %I', v_made.name, v_made.owner);
      exception when insufficient_privilege then
        raise warning '% does not belong to role %, as the tables do; let that role run this migration',
          v_made.name, v_made.owner;
      end;
    end if;
  end loop;
