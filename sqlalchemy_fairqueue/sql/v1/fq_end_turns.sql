-- fq_end_turns: move the state of channels of a queue that is fair by messages, after a dequeue took messages from
-- them; by cost it is fq_charge. The arrays have an element a channel: its state row (p_states); how many messages were
-- taken, and how many it was allowed to give (0: the dequeue left it alone); the position behind which it goes; what
-- was left of its turn; its first message that is left.
-- Guarantees: a channel that has given its turn goes behind all that were ready when the row was locked; one that has
-- not keeps its place and the rest of its turn.
-- Locks: only rows that the caller holds. Index: none, rows by ctid. Errors: none.
-- Source: deficit round robin (Shreedhar, Varghese 1995); generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_end_turns(
  p_queue text,
  p_states tid[],
  p_gots integer[],
  p_quotas integer[],
  p_positions bigint[],
  p_turns_left integer[],
  p_heads_at bigint[],
  p_head_ids bigint[],
  p_now bigint,
  p_signal_floor bigint
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
  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    current_concurrency = s.current_concurrency + case when s.max_concurrency is null then 0 else n.got end,
    backlog = fairqueue.fq_backlog_after(s.backlog, n.got::integer, n.head_at::bigint, p_queue, p_signal_floor),
    rate_at = case when n.got > 0 then greatest(s.rate_at, p_now) + n.got * s.rate_interval else s.rate_at end,
    head_dequeue_at = n.head_at,
    head_message_id = n.head_id,
    last_dequeue_at = case when n.got > 0 then n.position else s.last_dequeue_at end,
    credit = fairqueue.fq_credit_after(s.weight, n.turn_left::integer, n.got::integer, n.head_at::bigint, p_now),
    next_dequeue_at = fairqueue.fq_next_dequeue_at(
      s.next_dequeue_at, n.position::bigint, n.turn_left::integer, n.got::integer, n.head_at::bigint, p_now,
      s.rate_at, s.rate_interval, s.rate_burst
    )
  from (
    select u.*
    from unnest(p_states, p_gots, p_quotas, p_positions, p_turns_left, p_heads_at, p_head_ids)
      u(row, got, quota, position, turn_left, head_at, head_id)
    where u.quota > 0
  ) n
  where s.ctid = n.row;
end
$$;
