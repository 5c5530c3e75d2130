-- Raise if something in the schema has one of the names.
  select string_agg(distinct taken.name, ', ' order by taken.name) into v_taken
  from (
    select c.relname::text, c.relnamespace from pg_class c
    union all
    select t.typname::text, t.typnamespace from pg_type t
    union all
    select p.proname::text, p.pronamespace from pg_proc p
  ) taken(name, namespace)
  join pg_namespace n on n.oid = taken.namespace
  where n.nspname = v_schema
    and taken.name = any (array[{names}]);
  if v_taken is not null then
    raise exception using errcode = 'QF004',
      message = format('schema %I holds objects that are not fairqueue''s under names that it needs: %s; '
        'rename them, or install fairqueue in another schema', v_schema, v_taken);
  end if;
