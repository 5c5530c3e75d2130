-- The last row of the history that a transaction before xmin recorded.
select h.recorded_xid::text::bigint, h.id
from {schema}.fq_history h
where h.recorded_xid < %(xmin)s::text::xid8
order by h.recorded_xid desc, h.id desc
limit 1
