-- fq_running_transactions: the transactions that run in this database, including prepared ones, by names that no other
-- one gets while one of them runs.
-- Guarantees: a transaction that it does not name, and that has not ended, began after the call, and sees whatever was
-- committed before it. The caller's own is not named. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_running_transactions()
returns text[]
language sql
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select l.virtualtransaction
    from pg_locks l
    left join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'virtualxid'
      and l.granted
      and l.mode = 'ExclusiveLock'
      and l.pid <> pg_backend_pid()
      and (a.datname is null or a.datname = current_database())
  ) || array(
    select 'prepared ' || x.transaction::text
    from pg_prepared_xacts x
    where x.database = current_database()
  )
$$;
