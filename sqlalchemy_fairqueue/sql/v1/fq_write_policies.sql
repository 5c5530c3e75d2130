-- fq_write_policies: write the policies of channels. p_rows: their state rows, which the caller has locked. p_states:
-- these with the new policies, and with what configuration also changes: configured, backlog, current_concurrency,
-- current_cost. p_hearer: the caller attends to the queue, and found the channels ready.
-- Guarantees: no limit is broken. A ready channel that may be served at once keeps its place in the ready order. Any
-- other channel that may be served at some time (fq_opens_at) gets due_at, and a signal unless p_hearer, so that the
-- next hearing finds it.
-- Locks: none further. Index: fq_channel_state rows by ctid. Errors: none.
create function fairqueue.fq_write_policies(
  p_queue text, p_rows tid[], p_states fairqueue.fq_channel_state[], p_hearer boolean
)
returns void
language plpgsql
as $$
declare
  v_now bigint := fairqueue.fq_now();
begin
  with written as (
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      max_concurrency = w.max_concurrency,
      rate_interval = w.rate_interval,
      rate_burst = w.rate_burst,
      rate_of = w.rate_of,
      max_cost_out = w.max_cost_out,
      weight = w.weight,
      max_backlog = w.max_backlog,
      on_full = w.on_full,
      priority_aging = w.priority_aging,
      max_payload_bytes = w.max_payload_bytes,
      configured = w.configured,
      backlog = w.backlog,
      current_concurrency = w.current_concurrency,
      current_cost = w.current_cost,
      rate_at = t.rate_at,
      ready_tag = case when t.opens_at <= v_now then s.ready_tag end,
      due_at = case when s.ready_tag is null or t.opens_at > v_now then t.opens_at end
    -- no column of the table begins with fq_
    from unnest(p_rows, p_states) w(fq_row)
    cross join lateral (
      select r.rate_at,
        fairqueue.fq_opens_at(
          w.head_dequeue_at, w.paused_at,
          fairqueue.fq_has_room(w.max_concurrency, w.current_concurrency::bigint, w.max_cost_out, w.current_cost),
          r.rate_at::bigint, w.rate_interval, w.rate_burst
        ) as opens_at
      from (select least(w.rate_at, v_now + w.rate_burst * w.rate_interval) as rate_at) r
    ) t
    where s.ctid = w.fq_row
    returning s.channel_id, s.due_at
  )
  insert into fairqueue.fq_signal (queue, channel_id)
  select p_queue, u.channel_id
  from written u
  where u.due_at is not null
    and not p_hearer;
end
$$;
