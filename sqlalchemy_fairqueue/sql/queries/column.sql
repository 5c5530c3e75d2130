-- The columns of the tables of an installation.
select o.relname || '.' || a.attname as name,
  format_type(a.atttypid, a.atttypmod) as type,
  case when a.attnotnull then 'yes' end as "not null",
  a.attidentity::text as identity,
  a.attgenerated::text as generated,
  (select c.collname from pg_collation c where c.oid = a.attcollation) as collation,
  -- (In dollar quotes: in others backslashes depend on standard_conforming_strings.)
  regexp_replace(pg_get_expr(d.adbin, d.adrelid), $$'.*?(\w+)'::regclass$$, $$\1$$) as default,
  nullif(
    concat_ws(
      ', ',
      'increment by ' || nullif(s.seqincrement, 1),
      'cache ' || nullif(s.seqcache, 1),
      case when s.seqcycle then 'cycle' end,
      'maxvalue ' || nullif(s.seqmax, 9223372036854775807)
    ),
    ''
  ) as sequence
from {ours}
join pg_attribute a on a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
left join pg_depend y
  on y.classid = 'pg_class'::regclass
  and y.refclassid = 'pg_class'::regclass
  and y.refobjid = o.oid
  and y.refobjsubid = a.attnum
  and y.deptype in ('i', 'a')
  and exists (select from pg_sequence q where q.seqrelid = y.objid)
left join pg_sequence s on s.seqrelid = y.objid
order by o.relname, a.attnum
