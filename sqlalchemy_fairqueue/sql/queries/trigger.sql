-- The triggers of the tables of an installation.
select o.relname || '.' || t.tgname as name,
  replace(replace(pg_get_triggerdef(t.oid),
    format(' ON %I.', o.nspname), ' ON '), format(' EXECUTE FUNCTION %I.', o.nspname), ' EXECUTE FUNCTION ')
    as definition,
  case t.tgenabled when 'D' then 'yes' end as disabled,
  -- an ordinary session does not fire a trigger that is enabled for replicas alone
  case t.tgenabled when 'R' then 'replica' when 'A' then 'always' end as enabled
from {ours}
join pg_trigger t on t.tgrelid = o.oid and not t.tgisinternal
order by o.relname, t.tgname
