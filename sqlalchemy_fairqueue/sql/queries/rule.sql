-- The rules of the tables of an installation. No version has one, so each is somebody's own.
select o.relname || '.' || r.rulename as name,
  replace(pg_get_ruledef(r.oid), quote_ident(o.nspname) || '.', '') as definition,
  case r.ev_enabled when 'D' then 'yes' end as disabled
from {ours}
join pg_rewrite r on r.ev_class = o.oid
order by o.relname, r.rulename
