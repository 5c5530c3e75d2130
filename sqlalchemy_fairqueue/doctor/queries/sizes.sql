-- The tables with their indexes and contents by size in bytes, the largest first; the partitions of the history
-- together. Reads the catalog and the sizes of files.
select
  coalesce(p.relname, c.relname) as table,
  sum(pg_total_relation_size(c.oid))::bigint as bytes
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_inherits i on i.inhrelid = c.oid
left join pg_class p on p.oid = i.inhparent
where n.nspname = :schema
  and c.relkind = 'r'
  and starts_with(c.relname, 'fq_')
group by 1
order by bytes desc, 1
