-- The greatest id of the messages in quarantine, null without any.
select max(q.id)
from fairqueue.fq_quarantine q
