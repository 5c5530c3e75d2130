-- The names of the history's partitions of days. Reads the catalog alone.
select c.relname
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
join pg_class p on p.oid = i.inhparent
join pg_namespace n on n.oid = p.relnamespace
where n.nspname = :schema
  and p.relname = 'fq_history'
  and c.relname ~ '^fq_history_p[0-9]{8}(_[0-9]+)?$'
order by c.relname
