-- The row so many rows after a position in the history, by transactions before one.
select h.recorded_xid::text::bigint, h.id
from {schema}.fq_history h
where (h.recorded_xid, h.id) > (%(xid)s::text::xid8, %(id)s)
  and h.recorded_xid < %(xmin)s::text::xid8
order by h.recorded_xid, h.id
offset %(skip)s
limit 1
