-- fq_charge: move the state of channels of a queue that is fair by cost, after a dequeue took messages from them. The
-- arrays have an element a channel: its state row (p_states); how many messages were taken, and how many it was allowed
-- to give (0: the dequeue left it alone); its first message that is left; its tag and tag_rest before the dequeue; the
-- sum of the costs of the messages that were taken.
-- Guarantees: the tag moves by the costs divided by the weight. A channel without a message that is due, at its limit
-- or held back by its rate leaves the ready order, and comes back at the virtual time. A credit ends with the backlog.
-- Locks: only rows that the caller holds. Index: none, rows by ctid. Errors: none.
-- Source: start-time fair queueing (Goyal, Vin, Cheng 1996).
create function fairqueue.fq_charge(
  p_queue text,
  p_states tid[],
  p_gots integer[],
  p_quotas integer[],
  p_heads_at bigint[],
  p_head_ids bigint[],
  p_tags bigint[],
  p_rests bigint[],
  p_costs bigint[],
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
    last_dequeue_at = case when n.got > 0 then p_now else s.last_dequeue_at end,
    credit = 0,
    tag = n.tag_after,
    tag_rest = greatest(
      fairqueue.fq_tag_rest(n.rest::bigint, n.cost::bigint, s.weight),
      case when n.head_at is null then 0 end
    ),
    next_dequeue_at = case when n.is_ready then n.tag_after else n.until end
  from (
    select u.*,
      fairqueue.fq_tag_after(u.tag::bigint, u.rest::bigint, u.cost::bigint, o.weight) as tag_after,
      fairqueue.fq_next_dequeue_at(
        p_now, p_now, 0::integer, u.got::integer, u.head_at::bigint, p_now, o.rate_at, o.rate_interval, o.rate_burst
      ) as until,
      fairqueue.fq_next_dequeue_at(
        p_now, p_now, 0::integer, u.got::integer, u.head_at::bigint, p_now, o.rate_at, o.rate_interval, o.rate_burst
      ) <= p_now
        and (o.current_concurrency + u.got >= o.max_concurrency) is not true as is_ready
    from unnest(p_states, p_gots, p_quotas, p_heads_at, p_head_ids, p_tags, p_rests, p_costs)
      u(row, got, quota, head_at, head_id, tag, rest, cost)
    join fairqueue.fq_channel_state o on o.ctid = u.row
    where u.quota > 0
  ) n
  where s.ctid = n.row;
end
$$;
