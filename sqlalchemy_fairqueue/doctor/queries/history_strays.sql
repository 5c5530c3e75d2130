-- How many rows of the history, counted up to :most, are in its default partition.
select count(*)
from (
  select
  from fairqueue.fq_history_default
  limit :most
) s
