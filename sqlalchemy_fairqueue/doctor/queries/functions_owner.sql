-- The owner of the functions, with whose rights they run: one row or none. Reads the catalog alone.
select pg_get_userbyid(p.proowner)::text as owner
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
where n.nspname = :schema
  and p.proname = 'fq_dequeue'
limit 1
