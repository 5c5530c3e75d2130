-- How many rows of the history, counted up to :most, are in its default partition for longer than :grace microseconds.
select count(*)
from (
  select
  from fairqueue.fq_history_default h
  where h.finished_at < fairqueue.fq_now() - :grace
  limit :most
) s
