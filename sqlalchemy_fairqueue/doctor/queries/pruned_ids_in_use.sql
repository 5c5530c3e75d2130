-- The greatest id of the record of pruned history, null without any.
select max(p.id)
from fairqueue.fq_pruned_history p
