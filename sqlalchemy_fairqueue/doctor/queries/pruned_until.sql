-- Until when the history from :since until before :until (microseconds) was pruned: one row, null if it is whole.
select max(p.finished_until)
from fairqueue.fq_pruned_history p
where p.finished_until > :since
  and p.finished_from < :until
