-- fq_find_stage: the staging table of that name, which the caller made. Used by fq_merge and fq_drop_stage.
-- Guarantees: it is a table of the functions' owner that the caller may insert into. Whatever another role puts under
-- such a name is never read with the rights of the owner.
-- Locks: none. Index: none. Errors: 42P01 there is none; 42501 it is the stage of another role.
create function fairqueue.fq_find_stage(p_stage text)
returns regclass
language plpgsql
stable
as $$
declare
  v_schema text := fairqueue.fq_stage_schema();
  v_stage oid;
begin
  select c.oid into v_stage
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = v_schema
    and c.relname = p_stage
    and c.relkind = 'r'
    and c.relpersistence = 'u'
    and c.relname similar to 'fq\_stage\_[0-9]{1,18}\_[0-9a-f]{12}'
    and c.relowner = (select r.oid from pg_roles r where r.rolname = current_user);
  if not found then
    raise exception 'staging table % does not exist in schema %', left(p_stage, 80), v_schema
      using errcode = '42P01',
        hint = 'give the name that fq_make_stage returned; old tables are dropped by later loads: run the load again';
  end if;
  if not has_table_privilege(fairqueue.fq_caller(), v_stage, 'insert') then
    raise exception 'staging table % belongs to the load of another role', p_stage
      using errcode = '42501', hint = 'merge and drop a stage as the role that called fq_make_stage';
  end if;
  return v_stage;
end
$$;
