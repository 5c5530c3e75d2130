-- fq_hear_many: apply signals to the states of their channels: lower the head, make idle channels ready, free slots,
-- count messages, move tags by corrected costs (fq_tag_heard). By signal, in the order of p_channels: its row, id and
-- channel. Signals of locked channels are put back with p_must, or with p_noting if others were heard. p_by_cost: as
-- fq_hear_one.
-- Returns seen: p_rows without the signals that were put back; the rest as fq_hear_signals.
-- Guarantees: as fq_hear_signals. The head of a paused channel is lowered, but the channel does not become ready. A
-- channel keeps the greatest id of its signals (heard_id): fq_channel_room adds up only what signals with a
-- greater id will add to its backlog. Signals of a channel that is gone are deleted.
-- Locks: as fq_lock_heard; the signals, which nobody else locks without these rows.
-- Index: as fq_hear_signals. Errors: none.
create function fairqueue.fq_hear_many(
  p_queue text, p_rows tid[], p_ids bigint[], p_channels bigint[], p_by_cost boolean, p_virtual_time bigint,
  p_now bigint, p_noting boolean, p_must boolean,
  out heard integer, out seen integer, out freed bigint, out freed_cost bigint, out costs bigint, out first_due bigint
)
language plpgsql
as $$
declare
  k record;
  b record;
begin
  -- A channel's signals are a stretch of the arrays. (Finding them by channel would be a nested loop: quadratic.)
  k := fairqueue.fq_lock_heard(p_channels);

  -- A new statement, whose snapshot is younger than the locks.
  with dropped as (
    delete from fairqueue.fq_signal g
    using unnest(k.states, k.firsts, k.counts) l(state, first, signals)
    cross join lateral generate_series(l.first, l.first + l.signals - 1) i
    where g.ctid = p_rows[i.i]
      and g.id is not distinct from p_ids[i.i]
    returning l.state, g.id, g.dequeue_at, g.message_id, g.freed, g.queue_freed, g.freed_cost, g.queue_freed_cost,
      g.added, g.dropped, g.cost, g.took
  ),
  told as materialized (
    select d.state, d.signals, d.last_id, d.freed, d.queue_freed, coalesce(d.freed_cost, 0) as freed_cost,
      d.queue_freed_cost, d.added, d.dropped, d.cost, d.took, case when p_by_cost then d.cost end as charge,
      d.least[1] as dequeue_at, d.least[2] as message_id
    from (
      select d.state, count(*) as signals, max(d.id) as last_id, sum(d.freed) as freed,
        sum(d.queue_freed) as queue_freed, sum(d.freed_cost)::bigint as freed_cost,
        sum(d.queue_freed_cost) as queue_freed_cost, sum(d.added) as added, sum(d.dropped) as dropped,
        sum(d.cost)::bigint as cost,
        avg(d.took)::bigint as took,
        min(array[d.dequeue_at, d.message_id]) filter (where d.message_id is not null) as least
      from dropped d
      group by d.state
    ) d
  ),
  applied as (
    update fairqueue.fq_channel_state s
    set row_version = s.row_version + 1,
      current_concurrency = s.current_concurrency - t.freed,
      current_cost = s.current_cost - t.freed_cost,
      rate_at = n.rate_at,
      backlog = s.backlog + t.added,
      heard_id = greatest(s.heard_id, t.last_id),
      dropped = s.dropped + t.dropped,
      head_dequeue_at = n.head_at,
      head_message_id = n.head_id,
      tag = coalesce(h.tag, k.tag),
      tag_rest = coalesce(h.rest, n.rest),
      mean_cost = fairqueue.fq_mean_cost(s.mean_cost, t.took),
      ready_tag = case when n.is_ready then coalesce(h.tag, k.tag) end,
      due_at = case when not n.is_ready then n.opens_at end
    from told t
    cross join lateral (
      select u.*, (u.ready_tag is not null and u.rate_of = 'messages') or (u.opens_at <= p_now) is true as is_ready
      from (
        select o.ready_tag, o.weight, o.tag, o.tag_rest as rest, o.rate_of, r.rate_at,
          case when b.lower then t.dequeue_at else o.head_dequeue_at end as head_at,
          case when b.lower then t.message_id else o.head_message_id end as head_id,
          fairqueue.fq_opens_at(
            (case when b.lower then t.dequeue_at else o.head_dequeue_at end)::bigint, o.paused_at,
            fairqueue.fq_has_room(
              o.max_concurrency, (o.current_concurrency - t.freed)::bigint, o.max_cost_out,
              (o.current_cost - t.freed_cost)::bigint
            ),
            r.rate_at::bigint, o.rate_interval, o.rate_burst
          ) as opens_at
        from fairqueue.fq_channel_state o
        cross join lateral (
          select t.message_id is not null
            and (o.head_dequeue_at is null or (t.dequeue_at, t.message_id) < (o.head_dequeue_at, o.head_message_id))
            as lower
        ) b
        cross join lateral (
          select case
              when o.rate_of = 'cost' then fairqueue.fq_rate_after(o.rate_at, coalesce(t.cost, 0)::bigint, o.rate_interval)
              else o.rate_at
            end as rate_at
        ) r
        where o.ctid = t.state
      ) u
    ) n
    cross join lateral (
      select case when n.is_ready and n.ready_tag is null then greatest(n.tag, p_virtual_time) else n.tag end as tag
    ) k
    left join lateral (
      -- The limit keeps the condition in here: most signals need no call.
      select x.*
      from fairqueue.fq_tag_heard(
        n.ready_tag::bigint, n.tag::bigint, n.rest::bigint, n.weight::integer, t.charge::bigint,
        n.is_ready::boolean, p_virtual_time
      ) x
      where t.charge <> 0
        or (n.is_ready and n.rest < 0)
      limit 1
    ) h on true
    where s.ctid = t.state
    returning s.due_at
  )
  select
    (select coalesce(sum(t.signals), 0) from told t),
    (select coalesce(sum(t.queue_freed), 0) from told t),
    (select sum(t.queue_freed_cost) from told t), (select sum(t.cost) from told t),
    (select min(a.due_at) from applied a)
  into heard, freed, freed_cost, costs, first_due;
  seen := cardinality(p_rows);
  if heard < seen and (p_must or (p_noting and heard > 0)) then
    b := fairqueue.fq_put_back(p_queue, p_rows, p_ids);
    seen := seen - b.signals;
    freed := freed + b.freed;
    freed_cost := coalesce(freed_cost, 0) + coalesce(b.freed_cost, 0);
  end if;
end
$$;
