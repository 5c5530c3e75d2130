-- The oldest open transaction that has written, in any database of the cluster. A prepared transaction is not found: it
-- has no session.
select a.pid, extract(epoch from clock_timestamp() - a.xact_start)::float8, coalesce(a.application_name, '')
from pg_stat_activity a
where a.backend_xid is not null
order by age(a.backend_xid) desc
limit 1
