-- The sequences of :tables that the role may not read. Reads the catalog alone.
-- The case has PostgreSQL test relkind first, whatever the planner prefers.
select s.relname as sequence
from pg_depend d
join pg_class s on s.oid = d.objid and s.relkind = 'S'
join pg_class c on c.oid = d.refobjid and c.relname = any(cast(:tables as text[]))
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema
  and d.classid = 'pg_class'::regclass
  and d.refclassid = 'pg_class'::regclass
  and d.deptype in ('a', 'i')
  and case
    when s.relkind = 'S' then not has_sequence_privilege(s.oid, 'select')
    else false
  end
order by s.relname
