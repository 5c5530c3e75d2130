-- The greatest id of the history, null if it is empty. The history may be long and has no index for the greatest id.
-- The last transactions have drawn the last ids, but for a few that overtook each other, so the last thousand rows by
-- the index on recorded_xid suffice.
select max(h.id)
from (
  select h.id
  from fairqueue.fq_history h
  order by h.recorded_xid desc, h.id desc
  limit 1000
) h
