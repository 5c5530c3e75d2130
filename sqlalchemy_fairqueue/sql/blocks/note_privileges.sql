-- Write down who may execute functions, in a setting of the transaction: no table is made for it, and it is gone with
-- the transaction.
  perform set_config('fairqueue.privileges', coalesce((
    select json_agg(json_build_object('name', p.proname, 'grants', {grants}))
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = v_schema
      and p.proname = any (array[{names}]))::text, '[]'), true);
