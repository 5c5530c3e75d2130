-- The greatest id of the record of pruned history, null if it is empty.
select max(p.id)
from fairqueue.fq_pruned_history p
