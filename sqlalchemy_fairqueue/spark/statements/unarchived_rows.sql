-- For each day of a range, the number of rows of the history that transactions of a range have recorded.
select h.finished_at / 86400000000, count(*)
from {schema}.fq_history h
where h.finished_at >= %(since)s
  and h.finished_at < %(until)s
  and h.recorded_xid >= %(low)s::text::xid8
  and h.recorded_xid < %(high)s::text::xid8
group by 1
