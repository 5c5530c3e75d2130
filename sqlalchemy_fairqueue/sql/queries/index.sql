-- The indexes of the tables of an installation.
select x.relname as name,
  o.relname as table,
  replace(replace(pg_get_indexdef(i.indexrelid),
    format(' ON %I.', o.nspname), ' ON '), format(' ON ONLY %I.', o.nspname), ' ON ONLY ') as definition,
  case when not (i.indisvalid and i.indisready) then 'yes' end as invalid
from {ours}
join pg_index i on i.indrelid = o.oid
join pg_class x on x.oid = i.indexrelid
order by x.relname
