-- Counts the rows of the history after a position that transactions before xmin recorded, up to the parameter most.
select count(*)
from (
  select
  from {schema}.fq_history h
  where (h.recorded_xid, h.id) > (%(xid)s::text::xid8, %(id)s)
    and h.recorded_xid < %(xmin)s::text::xid8
  limit %(most)s
) r
