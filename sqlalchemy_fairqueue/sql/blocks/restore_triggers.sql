-- Make the triggers those of the version. A function that is dropped with cascade takes its trigger along. Tables whose
-- triggers are right are not locked. Other tables are locked as a step between versions does: behind vacuums, then in
-- tries, so that no transactions queue behind a long one.
  for v_trigger in
    select c.oid::regclass::text as table, e.name, e.make, t.oid is not null as is_there
    from (values
{expected}
    ) e(relation, name, definition, make)
    join pg_namespace n on n.nspname = v_schema
    join pg_class c on c.relnamespace = n.oid and c.relname = e.relation
    left join pg_trigger t on t.tgrelid = c.oid and t.tgname = e.name
    where t.oid is null
      or t.tgenabled <> 'O'
      or replace(replace(pg_get_triggerdef(t.oid),
        format(' ON %I.', v_schema), ' ON '), format(' EXECUTE FUNCTION %I.', v_schema), ' EXECUTE FUNCTION ')
        <> e.definition
    order by e.relation, e.name
  loop
    perform set_config('lock_timeout', '60s', true);
    execute format('lock table %s in share update exclusive mode', v_trigger.table);
    for v_try in 1..300 loop
      begin
        perform set_config('lock_timeout', '50ms', true);
        execute format('lock table %s in %s mode', v_trigger.table,
          case when v_trigger.is_there then 'access exclusive' else 'share row exclusive' end);
        exit;
      exception when lock_not_available then
        if v_try = 300 then
          raise exception 'table % was in use at each of % tries to bring back its trigger %',
              v_trigger.table, v_try, v_trigger.name
            using errcode = '55P03',
              hint = 'end the transactions that have written to it (pg_stat_activity names them), then repair again';
        end if;
        perform pg_sleep(0.2);
      end;
    end loop;
    perform set_config('lock_timeout', v_timeout, true);
    if v_trigger.is_there then
      execute format('drop trigger %I on %s', v_trigger.name, v_trigger.table);
    end if;
    execute replace(v_trigger.make, {qualifier}, '"' || replace(v_schema, '"', '""') || '".fq_');
  end loop;
