-- The schemas of the database that hold fairqueue: one row each. Reads the catalog alone.
select n.nspname
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
where p.proname = 'fq_version'
  and p.pronargs = 0
  and n.nspname !~ '^pg_'
  and exists (
    select
    from pg_class c
    where c.relnamespace = n.oid
      and c.relname = 'fq_message'
  )
order by n.nspname
