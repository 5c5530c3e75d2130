-- The 20 oldest prepared transactions of this database.
select
  p.gid,
  p.owner,
  clock_timestamp() - p.prepared as open_for,
  age(p.transaction) as transactions
from pg_prepared_xacts p
where p.database = current_database()
order by p.prepared
limit 20
