-- Completions a channel that were committed between the snapshot :before and the present one, each counted once.
-- Reads the history by its index on recorded_xid; ids and times would miss what is committed late.
select
  h.queue,
  h.channel,
  count(*) as attempts
from fairqueue.fq_history h
where h.recorded_xid >= pg_snapshot_xmin(cast(:before as pg_snapshot))
  and not pg_visible_in_snapshot(h.recorded_xid, cast(:before as pg_snapshot))
  and h.outcome = 'completed'
  and h.queue = any(:queues)
group by h.queue, h.channel
