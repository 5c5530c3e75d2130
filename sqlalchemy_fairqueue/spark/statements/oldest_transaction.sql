-- The oldest transaction that has written and is open or prepared, in any database of the cluster.
select a.pid, extract(epoch from clock_timestamp() - a.xact_start)::float8, coalesce(a.application_name, '')
from pg_stat_activity a
where a.backend_xid is not null
order by age(a.backend_xid) desc
limit 1
