-- The 20 replication slots that hold back the oldest rows of this database from vacuum. A logical slot holds back rows
-- of the catalog alone: then held is null.
select
  s.slot_name,
  s.active,
  greatest(age(s.xmin), age(s.catalog_xmin)) as transactions,
  age(s.xmin) as held
from pg_replication_slots s
where (s.xmin is not null or s.catalog_xmin is not null)
  and (s.database is null or s.database = current_database())
order by transactions desc
limit 20
