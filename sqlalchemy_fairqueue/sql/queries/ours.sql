-- The tables of an installation, as the subquery {ours} of the queries about them.
(
  select c.oid, c.relname, c.relkind, c.relpersistence, c.relreplident, c.relrowsecurity, c.reloptions, c.relowner,
    n.nspname,
    (select m.relowner from pg_class m where m.relnamespace = n.oid and m.relname = 'fq_message') as owner
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = :schema
    and c.relname = any (:tables)
    and c.relkind in ('r', 'p')
    and not c.relispartition
) o
