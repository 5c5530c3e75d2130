-- The schema of the staging tables, if it is there.
select 'stages' as name
from pg_namespace n
where n.nspname = {stages}
