-- fq_make_stage: make a table to copy the messages of one bulk load into, and drop those that loads left behind.
-- Returns its name, without the schema. Columns that a copy leaves out are null. attempt: whatever the load tells its
-- copies apart by; fq_merge is told which of them count.
-- Guarantees: the table is in the schema of the queues, unlogged, and named fq_stage_MICROSECONDS_RANDOM; nobody else
-- knows it. Tables made more than p_ttl microseconds ago are dropped, those apart that somebody is using or that
-- another role owns. The caller owes the table a drop.
-- Locks: access exclusive on the tables that it drops; waits 100 ms for one, then leaves it. Index: none.
-- Errors: QF001 bad argument; 42501 without the right to create in the schema.
create function fairqueue.fq_make_stage(p_ttl bigint)
returns text
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  v_schema oid := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_load));
  v_now bigint := fairqueue.fq_now();
  v_name text := format('fq_stage_%s_%s', v_now, left(replace(gen_random_uuid()::text, '-', ''), 12));
  v_left text;
begin
  if p_ttl is null or p_ttl < 0 then
    raise exception 'fq_make_stage has ttl %', p_ttl
      using errcode = 'QF001', hint = 'say after how many microseconds a table that a load left behind is dropped';
  end if;
  for v_left in
    select format('%s.%I', v_schema::regnamespace, c.relname)
    from pg_class c
    where c.relnamespace = v_schema
      and c.relkind = 'r'
      and c.relname similar to 'fq\_stage\_[0-9]{1,18}\_[0-9a-f]{12}'
      and split_part(c.relname, '_', 3)::bigint < v_now - p_ttl
      and pg_has_role(c.relowner, 'usage')
    order by 1
  loop
    begin
      execute format('drop table if exists %s', v_left);
    exception when lock_not_available then
      null;
    end;
  end loop;
  execute format(
    'create unlogged table %s.%I ('
    '  attempt bigint not null,'
    '  channel text collate "C" not null,'
    '  kind text not null,'
    '  content bytea not null,'
    '  headers jsonb,'
    '  delay bigint,'
    '  at bigint,'
    '  priority integer,'
    '  key text collate "C",'
    '  max_attempts integer'
    ') with (autovacuum_enabled = false)',
    v_schema::regnamespace, v_name
  );
  return v_name;
end
$$;
