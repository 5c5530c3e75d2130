-- How many rows of the history, counted up to :most, have transaction ids that this server has not assigned yet. The
-- index on recorded_xid gives the greatest first, so the read ends as a rule at the first row of each partition.
select count(*)
from (
  select
  from fairqueue.fq_history h
  where h.recorded_xid >= pg_snapshot_xmax(pg_current_snapshot())
  order by h.recorded_xid desc, h.id desc
  limit :most
) s
