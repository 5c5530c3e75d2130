-- fq_record_attempts: append attempts that have ended to the history. Used by complete, retry, release, bury, cancel and reclaim.
-- Guarantees: one row an attempt, with the caller's transaction. p_attempts holds what the message says (channel_id, message_id, kind, attempt,
-- enqueued_at, ready_at, started_at, finished_at (null: now), error), p_lease_ids the lease of each, which names the consumer if it is still there.
-- A message that was reclaimed and handed out in one call was ready when that began, not after.
-- Locks: none. Index: fq_channel_pkey, fq_lease_pkey. Errors: none.
create function fairqueue.fq_record_attempts(p_queue text, p_attempts fairqueue.fq_history[], p_lease_ids bigint[], p_outcome text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  insert into fairqueue.fq_history (
    queue, channel_id, channel, message_id, kind, consumer, attempt, enqueued_at, ready_at, started_at, finished_at, outcome, error
  )
  select p_queue, a.channel_id, c.name, a.message_id, a.kind, e.consumer, a.attempt, a.enqueued_at, a.ready_at, a.started_at, coalesce(a.finished_at, v_now), p_outcome, a.error
  from rows from (unnest(p_attempts), unnest(p_lease_ids)) with ordinality
    a(id, queue, channel_id, channel, message_id, kind, consumer, attempt, enqueued_at, ready_at, started_at, finished_at, outcome, error, recorded_xid,
      lease_id, ord)
  cross join lateral (
    select k.name
    from fairqueue.fq_channel k
    where k.id = a.channel_id
    limit 1
  ) c
  left join lateral (
    select l.consumer
    from fairqueue.fq_lease l
    where l.id = a.lease_id
    limit 1
  ) e on true;
end
$$;
