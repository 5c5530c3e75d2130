-- What tells the server from PostgreSQL itself: one row. marks: the products built on PostgreSQL that were found.
-- other_methods: tables of ours that have another access method than PostgreSQL's own.
select
  version() as version,
  array_remove(
    array[
      case when exists (select from pg_proc p where p.proname = 'aurora_version') then 'aurora' end,
      case
        when
          current_setting('alloydb.iam_authentication', true) is not null
          or exists (select from pg_settings s where s.name like 'alloydb.%')
          then 'alloydb'
      end,
      case when current_setting('neon.timeline_id', true) is not null then 'neon' end,
      case when exists (select from pg_extension e where e.extname = 'citus') then 'citus' end
    ],
    null
  ) as marks,
  array(
    select array[c.relname::text, m.amname::text]
    from pg_class c
      join pg_am m
        on m.oid = c.relam
      join pg_namespace n
        on n.oid = c.relnamespace
    where n.nspname = :schema
      and c.relkind = 'r'
      and starts_with(c.relname, 'fq_')
      and m.amname <> 'heap'
    order by c.relname
  ) as other_methods,
  to_regclass('pg_catalog.pg_dist_partition') is not null as has_distribution
