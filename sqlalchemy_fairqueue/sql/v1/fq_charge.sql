-- fq_charge: update the states of channels after a dequeue took messages from them. p_states: state rows. By channel to
-- update: p_givers: its position in p_states; p_gots: messages taken; p_costs: what they cost together; p_heads_at,
-- p_head_ids: its first message that is left. p_dispatcher: the queue's state; p_hearer: the caller attends.
-- Guarantees: the tag moves by the costs (p_by_cost) or the number of messages, divided by the weight. A channel leaves
-- the ready order if no message of it is due, or its limit, max_cost_out or rate holds it back. If others have all its
-- due messages locked, it is due again in 10 ms. One that was not ready (fq_take_more) is due now, since only who makes
-- it ready knows where it may stand. A credit ends with the backlog. Who does not attend leaves a signal of each channel
-- that waits for a time, by which the next hearer lowers due_floor.
-- Locks: only rows that the caller holds. Index: as fq_head_cost; rows by ctid. Errors: none. Source: start-time fair
-- queueing (Goyal, Vin, Cheng 1996); generic cell rate algorithm (ITU-T I.371).
create function fairqueue.fq_charge(
  p_queue text, p_states tid[], p_givers integer[], p_gots integer[], p_costs bigint[], p_heads_at bigint[],
  p_head_ids bigint[], p_by_cost boolean, p_now bigint, p_dispatcher fairqueue.fq_queue_state,
  p_hearer boolean
)
returns void
language plpgsql
as $$
begin
  with moved as (
  update fairqueue.fq_channel_state s
  set row_version = s.row_version + 1,
    current_concurrency = s.current_concurrency + case when n.is_limited then n.got else 0 end,
    current_cost = s.current_cost + case when n.is_limited then n.cost else 0 end,
    backlog = fairqueue.fq_backlog_after(s.backlog, n.got::integer, n.head_at::bigint, p_queue, p_dispatcher),
    rate_at = n.rate_at,
    head_dequeue_at = n.head_at,
    head_message_id = n.head_id,
    last_dequeue_at = case when n.got > 0 then p_now else s.last_dequeue_at end,
    tag = n.tag,
    tag_rest = n.rest,
    ready_tag = case when n.opens_at <= p_now and s.ready_tag is not null then n.tag end,
    due_at = case
      when n.opens_at > p_now then n.opens_at
      when n.opens_at <= p_now and s.ready_tag is null then p_now
    end
  from (
    select o.ctid as row, u.got, u.cost, u.head_at, u.head_id, t.rate_at,
      num_nonnulls(o.max_concurrency, o.max_cost_out) > 0 as is_limited,
      fairqueue.fq_tag_after(o.tag, o.tag_rest, t.charge::bigint, o.weight) as tag,
      fairqueue.fq_tag_rest(o.tag_rest, t.charge::bigint, o.weight, u.head_at::bigint) as rest,
      fairqueue.fq_opens_at(
        (case when u.got = 0 and u.head_at <= p_now then p_now + 10000 else u.head_at end)::bigint, o.paused_at,
        fairqueue.fq_has_room(
          o.max_concurrency, (o.current_concurrency + u.got)::bigint, o.max_cost_out,
          (o.current_cost + u.cost)::bigint
        ) is not false and not case
          when o.max_cost_out is not null then fairqueue.fq_is_spent(
            o.max_cost_out, (o.current_cost + u.cost)::bigint,
            fairqueue.fq_head_cost(p_queue, u.head_id::bigint, o.mean_cost)
          )
          else false
        end,
        t.rate_at::bigint, o.rate_interval, o.rate_burst
      ) as opens_at
    from unnest(p_givers, p_gots, p_costs, p_heads_at, p_head_ids) u(giver, got, cost, head_at, head_id)
    join fairqueue.fq_channel_state o on o.ctid = p_states[u.giver]
    cross join lateral (
      select case when p_by_cost then u.cost else u.got end as charge,
        case
          when u.got > 0 then fairqueue.fq_rate_after(
            greatest(o.rate_at, p_now)::bigint, (case when o.rate_of = 'cost' then u.cost else u.got end)::bigint,
            o.rate_interval
          )
          else o.rate_at
        end as rate_at
    ) t
    -- Each column is computed once, however often it is named.
    offset 0
  ) n
  where s.ctid = n.row
  returning s.channel_id, s.due_at
  )
  insert into fairqueue.fq_signal (queue, channel_id)
  select p_queue, m.channel_id
  from moved m
  where m.due_at is not null
    and not p_hearer;
end
$$;
