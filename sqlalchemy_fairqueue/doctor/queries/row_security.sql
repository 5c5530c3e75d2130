-- Tables of which row level security may hide rows from :role, for the privileges asked for in :tables and :privileges,
-- with the restrictive policies that may hide them. Reads the catalog alone.
-- A role sees all rows if a permissive policy says true for the command, and no restrictive policy says anything else.
-- Any other expression counts as one that may hide rows.
with wanted as (
  select
    c.oid,
    c.relname,
    case r.privilege when 'select' then 'r' when 'insert' then 'a' when 'update' then 'w' else 'd' end as command
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join unnest(cast(:tables as text[]), cast(:privileges as text[])) r(name, privilege) on r.name = c.relname
  join pg_roles u on u.rolname = cast(:role as name)
  where n.nspname = :schema
    and c.relkind in ('r', 'p')
    and c.relrowsecurity
    and not (u.rolsuper or u.rolbypassrls)
    and (c.relforcerowsecurity or not pg_has_role(u.oid, c.relowner, 'usage'))
    and has_table_privilege(u.oid, c.oid, r.privilege)
),
policy as (
  select
    p.polrelid,
    p.polname,
    p.polpermissive,
    p.polcmd::text as command,
    coalesce(pg_get_expr(p.polqual, p.polrelid) = 'true', false) as reads,
    coalesce(pg_get_expr(coalesce(p.polwithcheck, p.polqual), p.polrelid) = 'true', false) as writes
  from pg_policy p
  where p.polrelid in (
      select w.oid
      from wanted w
    )
    and exists (
      select
      from unnest(p.polroles) r(oid)
      where case when r.oid = 0 then true else pg_has_role(cast(:role as name), r.oid, 'usage') end
    )
),
judged as (
  select
    w.relname,
    w.command,
    p.polname,
    p.polpermissive,
    case w.command when 'a' then p.writes when 'w' then p.reads and p.writes else p.reads end as everything
  from wanted w
  left join policy p on p.polrelid = w.oid and p.command in ('*', w.command)
)
select
  j.relname as table,
  array_agg(distinct j.polname::text) filter (where not j.polpermissive and not j.everything) as restrictive
from judged j
where (j.relname, j.command) in (
  select
    k.relname,
    k.command
  from judged k
  group by k.relname, k.command
  having coalesce(bool_or(k.everything and k.polpermissive), false) is false
    or bool_or(not k.polpermissive and not k.everything)
)
group by j.relname
order by j.relname
