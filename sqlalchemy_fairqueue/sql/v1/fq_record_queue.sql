-- fq_record_queue: record the attempts of a queue in fq_history, or stop recording them, in the caller's transaction.
-- p_history: whether; p_retention: for how many microseconds ended attempts are kept, 30 days where it was never said.
-- Null: as it is.
-- Guarantees: the change holds for attempts that begin by a dequeue after the commit. An attempt that was under way is
-- recorded if the queue recorded its history when the attempt began.
-- Locks: the queue's row; waits for another configuration of the same queue. Index: fq_queue_pkey. Errors: QF001 bad
-- name or retention; 40001; QF007.
create function fairqueue.fq_record_queue(p_queue text, p_history boolean default null, p_retention bigint default null)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off
as $$
begin
  if not pg_has_role(fairqueue.fq_caller(), current_user, 'usage') then
    perform fairqueue.fq_check_grant(array['operator']::text[], p_queue, null::text[])
    where exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0);
  end if;
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[]);
  if p_retention not between 1 and 3153600000000000 then
    raise exception 'fq_record_queue has retention % microseconds', p_retention
      using errcode = 'QF001', hint = 'keep attempts for 1 microsecond to 100 years, or null to leave it as it is';
  end if;
  insert into fairqueue.fq_queue as q (name, history, history_retention)
  values (p_queue, coalesce(p_history, false), p_retention)
  on conflict (name) do update
  set history = coalesce(p_history, q.history),
    history_retention = coalesce(p_retention, q.history_retention);
end
$$;
