-- fq_configure_queue: set the policy that channels of a queue made from now on start with. Existing channels keep
-- theirs.
-- Guarantees: takes effect with the caller's commit.
-- Locks: the queue's row; waits for another configuration of the same queue. Index: fq_queue_pkey. Errors: QF001 bad
-- policy; 40001.
create function fairqueue.fq_configure_queue(
  p_queue text,
  p_max_concurrency integer,
  p_rate_interval bigint,
  p_rate_burst integer,
  p_weight integer,
  p_max_backlog integer default null,
  p_drop_when_full boolean default false
)
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
begin
  perform fairqueue.fq_check_names(array[p_queue]);
  perform fairqueue.fq_check_policy(p_max_concurrency, p_rate_interval, p_rate_burst, p_weight, p_max_backlog);
  insert into fairqueue.fq_queue (
    name, default_max_concurrency, default_rate_interval, default_rate_burst, default_weight, default_max_backlog,
    default_drop_when_full
  )
  values (p_queue, p_max_concurrency, p_rate_interval, p_rate_burst, p_weight, p_max_backlog, p_drop_when_full)
  on conflict (name) do update
  set has_defaults = true,
    default_max_concurrency = excluded.default_max_concurrency,
    default_rate_interval = excluded.default_rate_interval,
    default_rate_burst = excluded.default_rate_burst,
    default_weight = excluded.default_weight,
    default_max_backlog = excluded.default_max_backlog,
    default_drop_when_full = excluded.default_drop_when_full;
end
$$;
