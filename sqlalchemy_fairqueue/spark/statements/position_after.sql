-- Passes over as many rows of the history after a position as the parameter skip says, and returns the next one. Only
-- rows that transactions before xmin recorded count.
select h.recorded_xid::text::bigint, h.id
from {schema}.fq_history h
where (h.recorded_xid, h.id) > (%(xid)s::text::xid8, %(id)s)
  and h.recorded_xid < %(xmin)s::text::xid8
order by h.recorded_xid, h.id
offset %(skip)s
limit 1
