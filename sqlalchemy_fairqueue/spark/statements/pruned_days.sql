-- What was pruned after an entry of fq_pruned_history: its day, and the last transaction that it held.
select p.id, p.finished_from / 86400000000, p.recorded_xid::text::bigint
from {schema}.fq_pruned_history p
where p.id > %(pruned)s
order by p.id
