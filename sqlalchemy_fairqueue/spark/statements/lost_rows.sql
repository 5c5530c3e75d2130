-- What was pruned after an entry of fq_pruned_history, and lies after a position and in a range of time.
select p.finished_from, p.finished_until, p.pruned_at
from {schema}.fq_pruned_history p
where p.id > %(pruned)s
  and (p.recorded_xid, p.history_id) > (%(xid)s::text::xid8, %(id)s)
  and p.finished_until > %(since)s
  and p.finished_from < %(until)s
order by p.finished_from, p.id
