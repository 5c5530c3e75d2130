-- The number of rows of the history after a position, by transactions before one, up to a greatest number.
select count(*)
from (
  select
  from {schema}.fq_history h
  where (h.recorded_xid, h.id) > (%(xid)s::text::xid8, %(id)s)
    and h.recorded_xid < %(xmin)s::text::xid8
  limit %(most)s
) r
