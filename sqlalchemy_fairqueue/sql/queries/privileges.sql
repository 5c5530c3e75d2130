-- The privileges of all roles but the owners on what is fairqueue's in a schema.
select held.kind,
  held.name,
  case held.grantee when 0 then 'public' else coalesce(r.rolname, held.grantee::text) end as role,
  array_agg(distinct lower(held.privilege) order by lower(held.privilege)) as privileges
from (
  select 'function' as kind, p.proname::text as name, p.proowner as owner, a.grantee, a.privilege_type as privilege
  from pg_catalog.pg_proc p
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  cross join lateral pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a
  where n.nspname = :schema
    and p.proname = any (:functions)
  union all
  select case c.relkind when 'S' then 'sequence' else 'table' end, c.relname, c.relowner, a.grantee, a.privilege_type
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  cross join lateral (
    select t.* from pg_catalog.aclexplode(c.relacl) t
    union all
    select t.*
    from pg_catalog.pg_attribute x
    cross join lateral pg_catalog.aclexplode(x.attacl) t
    where x.attrelid = c.oid
      and not x.attisdropped
  ) a
  where n.nspname = :schema
    and c.relkind in ('r', 'p', 'S')
    and (
      c.relname = any (:tables)
      or exists (
        select
        from pg_catalog.pg_inherits i
        join pg_catalog.pg_class h on h.oid = i.inhparent
        where i.inhrelid = c.oid
          and h.relnamespace = n.oid
          and h.relname = any (:tables)
      )
      or exists (
        select
        from pg_catalog.pg_depend d
        join pg_catalog.pg_class h on h.oid = d.refobjid
        where d.objid = c.oid
          and d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
          and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
          and c.relkind = 'S'
          and h.relnamespace = n.oid
          and h.relname = any (:tables)
      )
    )
  union all
  select 'schema', n.nspname, n.nspowner, a.grantee, a.privilege_type
  from pg_catalog.pg_namespace n
  cross join lateral pg_catalog.aclexplode(n.nspacl) a
  where n.nspname = :schema
) held
left join pg_catalog.pg_roles r on r.oid = held.grantee
where held.grantee <> held.owner
group by held.kind, held.name, role
order by role, held.kind, held.name
