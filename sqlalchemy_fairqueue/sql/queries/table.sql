-- The tables of an installation, with their facts.
select o.relname as name,
  o.relkind::text as kind,
  o.relpersistence::text as persistence,
  o.relreplident::text as "replica identity",
  case when o.relrowsecurity then 'yes' end as "row security",
  case when o.relowner <> o.owner then 'yes' end as "another owner than fq_message",
  -- rows of a child table would be read with those of the table
  (
    select string_agg(c.relname, ', ' order by c.relname)
    from pg_inherits h
    join pg_class c on c.oid = h.inhrelid
    where h.inhparent = o.oid
      and o.relkind = 'r'
  ) as "inherited by",
  (select string_agg(option, ', ' order by option) from unnest(o.reloptions) option) as options,
  pg_get_partkeydef(o.oid) as "partition key",
  (select d.relname from pg_partitioned_table t join pg_class d on d.oid = t.partdefid where t.partrelid = o.oid)
    as "default partition"
from {ours}
order by o.relname
