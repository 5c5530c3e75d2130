-- Tables and other relations that have the name of a day of the history and are no partitions of it. Reads the catalog
-- alone.
select
  c.relname as name,
  pg_get_userbyid(c.relowner) as owner
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema
  and c.relname ~ '^fq_history_p[0-9]{8}$'
  and not exists (
    select
    from pg_inherits i
    join pg_class p on p.oid = i.inhparent
    where i.inhrelid = c.oid
      and p.relnamespace = n.oid
      and p.relname = 'fq_history'
  )
order by c.relname
