-- fq_grants: the grants of the installation, one row each: the role, its kind of work, its bounds.
-- Guarantees: a role that was dropped since is named by its number. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_grants()
returns table (role text, role_exists boolean, kind text, queues text[], channels text[])
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(r.rolname::text, g.role::oid::text), r.oid is not null, g.kind, g.queues, g.channels
  from fairqueue.fq_grant g
  left join pg_roles r on r.oid = g.role
  order by 1, g.kind
$$;
