-- The sequences of some tables on which the role lacks a privilege. Reads the catalog alone.
-- To insert takes a privilege on the sequence of a serial (kind a), and none on that of an identity (kind i); to read a
-- sequence takes one on both. The case has PostgreSQL test relkind first, whatever the planner prefers.
select s.relname as sequence
from pg_depend d
join pg_class s on s.oid = d.objid and s.relkind = 'S'
join pg_class c on c.oid = d.refobjid and c.relname = any(:tables)
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema
  and d.classid = 'pg_class'::regclass
  and d.refclassid = 'pg_class'::regclass
  and d.deptype = any(:kinds)
  and case
    when s.relkind = 'S' then not has_sequence_privilege(s.oid, :privilege)
    else false
  end
order by s.relname
