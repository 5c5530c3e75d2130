-- The sequences of the columns named id of :tables: their last values, and whether the role may read them.
-- The sequence of a serial depends on its column by deptype a, that of an identity column by deptype i. Only columns
-- named id are ours; a sequence of any other column is the user's.
-- The case makes PostgreSQL test relkind first; the planner may reorder plain conditions.
select
  c.relname as table,
  s.relname as sequence,
  q.last_value as last,
  case
    when s.relkind = 'S' then has_sequence_privilege(s.oid, 'usage') or has_sequence_privilege(s.oid, 'select')
  end as readable
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_depend d
  on d.refclassid = 'pg_class'::regclass
  and d.refobjid = c.oid
  and d.deptype in ('a', 'i')
  and d.classid = 'pg_class'::regclass
join pg_attribute a on a.attrelid = c.oid and a.attnum = d.refobjsubid and a.attname = 'id'
join pg_class s on s.oid = d.objid and s.relkind = 'S'
join pg_sequences q on q.schemaname = n.nspname and q.sequencename = s.relname
where n.nspname = :schema
  and c.relname = any(:tables)
order by c.relname
