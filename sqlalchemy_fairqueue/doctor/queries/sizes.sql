-- The tables with their indexes and contents, and the indexes, by size in bytes, the largest first; the partitions of
-- the history together. Reads the catalog and the sizes of files.
select
  coalesce(p.relname, c.relname) as name,
  c.relkind = 'i' as is_index,
  sum(case when c.relkind = 'i' then pg_relation_size(c.oid) else pg_total_relation_size(c.oid) end)::bigint as bytes
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_inherits i on i.inhrelid = c.oid
left join pg_class p on p.oid = i.inhparent
where n.nspname = :schema
  and c.relkind in ('r', 'i')
  and starts_with(c.relname, 'fq_')
group by 1, 2
order by bytes desc, 1
