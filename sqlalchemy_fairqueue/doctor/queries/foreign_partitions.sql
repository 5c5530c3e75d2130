-- Partitions of the history that have another owner than the history itself. Reads the catalog alone. A role that runs
-- the housekeeping owns the partitions that it makes, unless the functions give them away.
select
  cn.nspname as schema,
  c.relname as partition,
  pg_get_userbyid(c.relowner) as owner,
  pg_get_userbyid(p.relowner) as wanted
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
join pg_namespace cn on cn.oid = c.relnamespace
join pg_class p on p.oid = i.inhparent
join pg_namespace n on n.oid = p.relnamespace
where n.nspname = :schema
  and p.relname = 'fq_history'
  and c.relowner <> p.relowner
order by c.relname
