-- The functions of an installation. Their bodies name the schema in quotes, as the loader writes it: here it becomes
-- the qualifier of the files again.
select p.proname || '(' || (
    select coalesce(
      string_agg(replace(format_type(a.type, null), quote_ident(n.nspname) || '.', ''), ', ' order by a.position), '')
    from unnest(p.proargtypes) with ordinality a(type, position)
  ) || ')' as name,
  replace(pg_get_function_arguments(p.oid), quote_ident(n.nspname) || '.', '') as arguments,
  replace(pg_get_function_result(p.oid), quote_ident(n.nspname) || '.', '') as result,
  l.lanname as language,
  p.provolatile::text as volatility,
  p.proparallel::text as parallel,
  case when p.proisstrict then 'yes' end as strict,
  case when p.prosecdef then 'yes' end as "security definer",
  -- the search_path keeps quotes if the session that made the function, as a restore, had quote_all_identifiers
  replace(
    array_to_string(p.proconfig, '; '), 'search_path="pg_catalog", "pg_temp"', 'search_path=pg_catalog, pg_temp'
  ) as settings,
  case when exists (
    select
    from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
    where a.grantee = 0
  ) then 'yes' end as "execute by public",
  case when p.proowner <> (
    select m.relowner
    from pg_class m
    where m.relnamespace = n.oid
      and m.relname = 'fq_message'
  ) then 'yes' end as "another owner than the tables",
  md5(replace(p.prosrc, '"' || replace(n.nspname, '"', '""') || '".fq_', 'fairqueue.fq_')) as body
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
join pg_language l on l.oid = p.prolang
where n.nspname = :schema
  and p.proname = any (:functions)
order by p.proname, p.proargtypes::text collate "C"
