-- The owner of the history, if the role is not a member of it: one row or none. Reads the catalog alone.
select pg_get_userbyid(c.relowner) as owner
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema
  and c.relname = 'fq_history'
  and not pg_has_role(c.relowner, 'usage')
