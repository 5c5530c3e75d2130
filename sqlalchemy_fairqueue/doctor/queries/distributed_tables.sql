-- The tables of ours that Citus has distributed or replicated.
select c.relname as name
from pg_dist_partition d
  join pg_class c
    on c.oid = d.logicalrelid
where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = :schema)
  and starts_with(c.relname, 'fq_')
order by c.relname
