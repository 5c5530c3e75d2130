-- How many queues record their history, the time, and whether the role may read the default partition: one row. Workers
-- need no privilege on a partition, so a missing privilege is no finding.
select
  (
    select count(*)
    from fairqueue.fq_queue q
    where q.history
  ) as queues,
  fairqueue.fq_now() as now,
  (
    select has_table_privilege(c.oid, 'select')
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = :schema
      and c.relname = 'fq_history_default'
  ) as readable
