-- fq_queue_settings: the settings of the configured queues, by name; p_queue: only of this one (null: of all).
-- Guarantees: one snapshot; a queue that was never configured has no row. Retentions in microseconds.
-- Locks: none. Index: fq_queue_pkey. Errors: QF007.
create function fairqueue.fq_queue_settings(p_queue text)
returns table (
  queue text, defaults jsonb, max_concurrency integer, max_cost_out integer, rate_interval bigint, rate_burst integer,
  rate_of text, limits text[],
  history boolean, history_retention bigint, dead_letter_retention bigint, dead_letter_retention_by_kind jsonb,
  forget_channels_after bigint, fair_by text, default_plan text, result_retention bigint,
  on_dead text, on_dead_kinds text[]
)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[])
  where p_queue is not null;
  return query
  select q.name, q.defaults, q.max_concurrency, q.max_cost_out, q.rate_interval, q.rate_burst, q.rate_of, q.limits,
    q.history, q.history_retention, q.dead_letter_retention, q.dead_letter_retention_by_kind, q.forget_channels_after,
    q.fair_by, q.default_plan, q.result_retention, q.on_dead, q.on_dead_kinds
  from fairqueue.fq_queue q
  where p_queue is null
    or q.name = p_queue
  order by q.name;
end
$$;
