-- fq_retain_results: say for how many microseconds a queue keeps what its handlers return, in the caller's transaction.
-- p_retention null: results of messages that are delivered from now on are not kept, as before it is set.
-- Guarantees: holds for messages that a dequeue after the commit delivers; results that are kept already stay until
-- their time.
-- Locks: the queue's row; waits for another configuration of the same queue. Index: fq_queue_pkey. Errors: QF001 bad
-- name or retention; 40001; QF007.
create function fairqueue.fq_retain_results(p_queue text, p_retention bigint)
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
    raise exception 'fq_retain_results has retention % microseconds', p_retention
      using errcode = 'QF001', hint = 'keep results for 1 microsecond to 100 years, or null to keep none';
  end if;
  insert into fairqueue.fq_queue as q (name, result_retention)
  values (p_queue, p_retention)
  on conflict (name) do update
  set result_retention = p_retention;
end
$$;
