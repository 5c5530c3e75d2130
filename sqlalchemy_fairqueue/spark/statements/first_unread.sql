-- The age of the first row of the history after a position.
select {schema}.fq_now() - h.finished_at
from {schema}.fq_history h
where (h.recorded_xid, h.id) > (%(xid)s::text::xid8, %(id)s)
order by h.recorded_xid, h.id
limit 1
