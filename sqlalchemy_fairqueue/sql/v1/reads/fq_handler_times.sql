-- fq_handler_times: how long handlers of a queue took lately, by kind: a row for each bucket of p_bounds (microseconds,
-- rising) that an attempt fell into, bucket 0 below the first bound. p_channel: only this one; null: all.
-- Guarantees: one snapshot. It counts attempts that were completed, retried or buried in the last p_over microseconds,
-- of the last p_scan that all queues recorded.
-- Cost: p_scan rows of the history, however long it is. Locks: none. Index: fq_history_recorded_ix. Errors: QF001 bad
-- argument; QF007.
create function fairqueue.fq_handler_times(
  p_queue text, p_channel text, p_over bigint, p_bounds bigint[], p_scan integer
)
returns table (kind text, bucket integer, attempts bigint)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_handler_times has scan'::text, p_scan::bigint, 1::bigint, 1000000::bigint);
  perform fairqueue.fq_check_number(
    'fq_handler_times has bounds'::text, cardinality(p_bounds)::bigint, 1::bigint, null::bigint
  );
  return query
  select r.kind, width_bucket(r.finished_at - r.started_at, p_bounds), count(*)
  from (
    select h.queue, h.channel, h.kind, h.outcome, h.started_at, h.finished_at
    from fairqueue.fq_history h
    order by h.recorded_xid desc, h.id desc
    limit p_scan
  ) r
  where r.queue = p_queue
    and (p_channel is null or r.channel = p_channel)
    and r.outcome in ('completed', 'retried', 'buried')
    and r.finished_at > fairqueue.fq_now() - p_over
  group by 1, 2;
end
$$;
