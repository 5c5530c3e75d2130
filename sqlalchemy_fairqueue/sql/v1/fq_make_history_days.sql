-- fq_make_history_days: make the partitions p_names of the history for the days p_days (days since 1970, UTC), and move
-- the rows of these days from the default partition into them.
-- Guarantees: all are made, or none, and false is returned: a table was in use for longer than a tenth of a second.
-- Each belongs to the owner of the history.
-- Locks: as said by fq_keep_history, its only caller. Index: none. Errors: 42501 as there.
create function fairqueue.fq_make_history_days(p_history regclass, p_days bigint[], p_names text[])
returns boolean
language plpgsql
as $$
declare
  c_day constant bigint := 86400000000;
  c_bounds constant text := 'fq_bounds';
  v_schema text;
  v_owner name;
  v_default regclass;
  v_columns text;
begin
  select n.nspname, pg_get_userbyid(c.relowner), t.partdefid::regclass into v_schema, v_owner, v_default
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join pg_partitioned_table t on t.partrelid = c.oid
  where c.oid = p_history;
  select string_agg(quote_ident(a.attname), ', ' order by a.attnum) into v_columns
  from pg_attribute a
  where a.attrelid = p_history
    and a.attnum > 0
    and a.attgenerated = ''
    and not a.attisdropped;
  begin
    -- Rows are moved before the default partition is locked; those that came meanwhile are moved after.
    for i in 1..cardinality(p_days) loop
      -- Made with indexes and bounds, so that it is neither indexed nor read under the locks.
      execute format(
        'create table %I.%I (like %s including constraints including generated including storage including indexes,'
        ' constraint %I check (finished_at >= %s and finished_at < %s))',
        v_schema, p_names[i], p_history, c_bounds, p_days[i] * c_day, (p_days[i] + 1) * c_day
      );
      execute format('alter table %I.%I replica identity full', v_schema, p_names[i]);
      if v_owner <> current_user then
        begin
          execute format('alter table %I.%I owner to %I', v_schema, p_names[i], v_owner);
        exception when insufficient_privilege then
          -- This role has the owner's rights and cannot become the owner: it keeps the day.
          null;
        end;
      end if;
    end loop;
    for v_pass in 1..2 loop
      if v_pass = 2 then
        -- A verb that has chosen the default partition for a row of today would fail once today has its own: let verbs
        -- choose afterwards.
        if p_days[1] <= fairqueue.fq_now() / c_day then
          execute format('lock table only %s in share row exclusive mode', p_history);
        end if;
        execute format('lock table %s in access exclusive mode', v_default);
      end if;
      for i in 1..cardinality(p_days) loop
        execute format(
          'with moved as (delete from %s where finished_at >= %s and finished_at < %s returning %s)'
          ' insert into %I.%I (%s) select %s from moved',
          v_default, p_days[i] * c_day, (p_days[i] + 1) * c_day, v_columns,
          v_schema, p_names[i], v_columns, v_columns
        );
      end loop;
    end loop;
    for i in 1..cardinality(p_days) loop
      execute format(
        'alter table %s attach partition %I.%I for values from (%s) to (%s)',
        p_history, v_schema, p_names[i], p_days[i] * c_day, (p_days[i] + 1) * c_day
      );
      execute format('alter table %I.%I drop constraint %I', v_schema, p_names[i], c_bounds);
    end loop;
    return true;
  exception when lock_not_available then
    return false;
  end;
end
$$;
