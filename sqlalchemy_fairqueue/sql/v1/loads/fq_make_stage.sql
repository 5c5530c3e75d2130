-- fq_make_stage: make a table to copy the messages of one bulk load into, and drop tables that loads left behind.
-- Returns its name, without the schema (fq_stage_schema). Columns that a copy leaves out are null. attempt: by what the
-- load tells its copies apart; fq_merge is told which of them count. p_queue and p_job_id: the job whose stage it is,
-- for fq_job_stages; null for a load that is not run again under its name.
-- Guarantees: the table is unlogged, belongs to the owner of the functions, and is named fq_stage_MICROSECONDS_RANDOM.
-- The caller may insert into it and merge it, and must drop it by fq_drop_stage; other roles may do nothing with it.
-- Tables made more than p_ttl microseconds ago are dropped, unless somebody is using them. If the schema of the stages
-- is gone, it is made again, if the owner may make schemas.
-- Locks: access exclusive on the tables that it drops; waits 100 ms for one, then leaves it. Index: none.
-- Errors: QF001 bad argument; 42501 no schema for the stages, or one of another role.
create function fairqueue.fq_make_stage(p_ttl bigint, p_queue text default null, p_job_id text default null)
returns text
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  v_schema text := fairqueue.fq_stage_schema();
  v_owner oid := (select r.oid from pg_roles r where r.rolname = current_user);
  v_schema_owner oid;
  v_now bigint := fairqueue.fq_now();
  v_name text := format('fq_stage_%s_%s', v_now, left(replace(gen_random_uuid()::text, '-', ''), 12));
  v_left text;
begin
  perform fairqueue.fq_check_number('fq_make_stage has ttl'::text, p_ttl::bigint, 0::bigint, null::bigint);
  select n.nspowner into v_schema_owner
  from pg_namespace n
  where n.nspname = v_schema;
  if not found and has_database_privilege(current_database(), 'create') then
    execute format('create schema %I', v_schema);
    execute format('grant usage on schema %I to public', v_schema);
  elsif v_schema_owner is distinct from v_owner then
    raise exception 'there is no schema % for staging tables that belongs to %', v_schema, current_user
      using errcode = '42501',
        hint = format('let a role that may create schemas run: create schema %I authorization %I; '
          'grant usage on schema %I to public', v_schema, current_user, v_schema);
  end if;
  for v_left in
    select format('%I.%I', v_schema, c.relname)
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = v_schema
      and c.relkind = 'r'
      and c.relpersistence = 'u'
      and c.relname similar to 'fq\_stage\_[0-9]{1,18}\_[0-9a-f]{12}'
      and split_part(c.relname, '_', 3)::bigint < v_now - p_ttl
      and c.relowner = v_owner
    order by 1
  loop
    begin
      execute format('drop table if exists %s', v_left);
    exception when lock_not_available then
      null;
    end;
  end loop;
  execute format(
    'create unlogged table %I.%I ('
    '  attempt bigint not null,'
    '  channel text collate "C" not null,'
    '  kind text not null,'
    '  content bytea not null,'
    '  headers jsonb,'
    '  delay bigint,'
    '  at bigint,'
    '  priority integer,'
    '  key text collate "C",'
    '  max_attempts integer,'
    '  cost integer,'
    '  group_id uuid,'
    '  ordering_key text collate "C",'
    -- numbers rows in the order of a copy, by one session; a sequence of its own would need a privilege of the caller
    '  ordinal bigint generated always as identity (cache 1000),'
    '  constraint content_check check (octet_length(content) <= 268435456),'
    '  constraint names_check check ('
    '    octet_length(channel) between 1 and 512 and octet_length(kind) between 1 and 512'
    '    and octet_length(key) between 1 and 512 and octet_length(ordering_key) between 1 and 512'
    '  ),'
    -- what fq_headers_fit checks, which the caller may not execute
    '  constraint headers_check check ('
    '    case'
    '      when pg_column_size(headers) > 655360 then false'
    '      when pg_column_size(headers) > 1000'
    '        and jsonb_path_exists('
    '          headers,'
    '          (chr(36) || ''.** ? (@ > 1e300 || @ < -1e300 || (@ < 1e-300 && @ > -1e-300 && @ != 0))'')::jsonpath,'
    '          ''{}'', false'
    '        )'
    '      then false'
    -- leaves room for the group, which fq_merge adds to the headers
    '      else octet_length(headers::text) <= 65536 - case when group_id is null then 0 else 64 end'
    '    end'
    '  ),'
    '  constraint times_check check ('
    '    delay between 0 and 3153600000000000 and at <= 253402300799999999 and priority >= 1'
    '    and num_nonnulls(delay, at) <= 1'
    '  ),'
    '  constraint attempts_check check (max_attempts >= 1),'
    '  constraint cost_check check (cost between 1 and 1000000000)'
    ') with (autovacuum_enabled = false)',
    v_schema, v_name
  );
  if num_nulls(p_queue, p_job_id) = 0 then
    -- Everybody may read a comment: it has a hash of the names.
    execute format(
      'comment on table %I.%I is %L',
      v_schema, v_name, encode(sha256(convert_to(jsonb_build_array(p_queue, p_job_id)::text, 'UTF8')), 'hex')
    );
  end if;
  -- Default privileges of the owner must not open the table to others.
  for v_left in
    select distinct case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    cross join lateral aclexplode(c.relacl) a
    where n.nspname = v_schema
      and c.relname = v_name
      and a.grantee <> v_owner
  loop
    execute format('revoke all on table %I.%I from %s', v_schema, v_name, v_left);
  end loop;
  execute format('grant insert on table %I.%I to %I', v_schema, v_name, fairqueue.fq_caller());
  return v_name;
end
$$;
