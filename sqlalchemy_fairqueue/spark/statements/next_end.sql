-- The end of a read of at most so many changes. It is the end of a transaction: of the first one, if it alone has more
-- changes. Also how many changes were found after the start, up to the last end of a transaction, and how many messages
-- were decoded.
-- 73 is I (insert), 68 D (delete), 67 C (commit). The changes of a transaction come together, before its commit.
with decoded as materialized (
  select p.lsn, get_byte(p.data, 0) as kind, p.ord
  from pg_catalog.pg_logical_slot_peek_binary_changes(
    %(slot)s, %(upto)s::text::pg_lsn, %(changes)s::integer, 'proto_version', '1', 'publication_names', %(publications)s
  ) with ordinality p(lsn, xid, data, ord)
),
counted as materialized (
  select d.lsn, d.kind, count(*) filter (where d.kind in (73, 68)) over (order by d.ord) as changes
  from decoded d
),
ends as (
  select c.lsn, c.changes, max(c.changes) filter (where c.lsn <= %(start)s::text::pg_lsn) over () as known
  from counted c
  where c.kind = 67
)
select (
    coalesce(max(e.lsn) filter (where e.changes - coalesce(e.known, 0) <= %(most)s::bigint), min(e.lsn)) - '0/0'
  )::bigint,
  coalesce(max(e.changes - coalesce(e.known, 0)), 0),
  (select count(*) from counted)
from ends e
where e.lsn > %(start)s::text::pg_lsn
