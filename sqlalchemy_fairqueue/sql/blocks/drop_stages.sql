-- Drop the staging tables that the role may drop, and their schema unless it holds something else.
  v_stages := {schema};
  for v_stage in
    select format('%I.%I', n.nspname, c.relname) as name
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = v_stages
      and c.relkind = 'r'
      and c.relpersistence = 'u'
      and c.relname ~ {name}
      and array(select a.attname::text from pg_attribute a where a.attrelid = c.oid) @> {columns}
      and (pg_has_role(c.relowner, 'usage') or pg_has_role(n.nspowner, 'usage'))
    order by c.relname collate "C"
  loop
    execute 'drop table ' || v_stage.name;
  end loop;
  if exists (select from pg_namespace n where n.nspname = v_stages) then
    begin
      execute format('drop schema %I', v_stages);
    exception
      when dependent_objects_still_exist then
        raise warning 'schema % holds objects that are not fairqueue''s and stays', v_stages;
      when insufficient_privilege then
        raise warning 'schema % belongs to another role and stays; let that role drop it', v_stages;
    end;
  end if;
