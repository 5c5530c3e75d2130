-- Gives rows of the history with transaction ids that this server has not come to the id of this transaction.
update fairqueue.fq_history
set recorded_xid = pg_current_xact_id()
where recorded_xid >= pg_snapshot_xmax(pg_current_snapshot());
