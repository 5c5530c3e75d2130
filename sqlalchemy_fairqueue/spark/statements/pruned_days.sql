-- The entries of fq_pruned_history after one of them. Each gives its id, the day of the attempts that were pruned, and
-- the last transaction that recorded any of these attempts.
select p.id, p.finished_from / 86400000000, p.recorded_xid::text::bigint
from {schema}.fq_pruned_history p
where p.id > %(pruned)s
order by p.id
