-- fq_look: read what there is to do for a queue, before a dequeue writes anything. The record is called the sight;
-- fq_attend and fq_queue_room fill in the fields that are empty here. state: the dispatch row; epoch: of the server.
-- is_signalled, has_expired, has_promotions, is_due, has_plans: there are unheard signals, expired leases, due
-- promotions, channels whose time has come, changed plans that some of their channels lack; has_work: any of these.
-- first_tag, first_channel: of the first ready channel; bound_tag: where it will stand after one message. fq_choose_one
-- and fq_choose tell which calls take nothing beyond it; null: no channel is ready, or the first one has stood still
-- for a second: its holder may keep it for long. is_held_back: a shared limit without a rate is used up, and knows that
-- the queue waits; must_attend: fq_attend has something to do, or messages may go that it must count; may_note: the
-- dispatch row was last written more than 10 ms ago.
-- Guarantees: one statement, one snapshot, but for is_held_back. A dispatch row that came out of a dump may name
-- transactions of another server. Then its heard_below is above its own xmin or in the future, and all signals count as
-- unheard.
-- Locks: none. Index: fq_queue_pkey, fq_queue_state_newest_ix, fq_signal_pkey, fq_lease_expires_ix,
-- fq_promotion_due_ix, fq_channel_state_due_ix; that of fq_first_ready. Errors: none.
create function fairqueue.fq_look(p_queue text, p_limit integer, p_now bigint)
returns record
language plpgsql
as $$
declare
  v_sight record;
begin
  select d.state,
    (
      select e.value
      from fairqueue.fq_epoch e
      where e.one
        and e.xmin = e.written_by
        and e.started_at = pg_postmaster_start_time()
    ) as epoch,
    exists (
      select
      from fairqueue.fq_signal g
      where g.queue = p_queue
        and g.xid >= coalesce(d.heard_below, '0')
    )
    or exists (
      select
      from fairqueue.fq_signal g
      where g.queue = p_queue
        and g.xid = any (d.heard_open)
    ) as is_signalled,
    exists (
      select
      from fairqueue.fq_lease e
      where e.queue = p_queue
        and e.expires_at >= case when d.swept_at between p_now - 100000 and p_now then d.lease_floor else 0 end
        and e.expires_at <= p_now
    ) as has_expired,
    exists (
      select
      from fairqueue.fq_promotion o
      where o.queue = p_queue
        and o.due_at <= p_now
    ) as has_promotions,
    exists (
      select
      from fairqueue.fq_channel_state s
      where s.queue = p_queue
        and s.due_at >= coalesce(least(d.due_floor, p_now), 0)
        and s.due_at <= p_now
    ) as is_due,
    q.plans is true and exists (
      select
      from fairqueue.fq_plan n
      where n.queue = p_queue
        and num_nonnulls(n.spread_after) = 1
    ) as has_plans,
    false as has_work, false as must_attend, false as is_held_back,
    (q.fair_by <> 'messages') is true as by_cost, (q.fair_by = 'seconds') is true as is_timed, q.history, q.plans,
    q.paused_at is not null as is_paused, q.limits, q.result_retention is not null as keeps_results,
    (num_nonnulls(q.max_concurrency, q.max_cost_out, q.limits) > 0 or q.rate_interval > 0) is true as is_limited,
    f.tag as first_tag, f.channel_id as first_channel,
    case when (f.tag = d.ready_floor and d.still_since <= p_now - 1000000) is not true then f.next_tag end as bound_tag,
    (f.tag, f.channel_id) <> (d.ready_floor, d.ready_channel) as has_moved,
    p_now not between d.noted_at and d.noted_at + 10000 as may_note, null::tid as dispatch_row, false as must_note,
    0 as heard, 0 as seen, false as has_more, 0 as moved, null::bigint as spread_in, p_limit as room, false as is_drawn,
    0::bigint as spent, null::bigint as rate_left, null::bigint as cost_left, null::bigint as first_left
  into v_sight
  from (values (p_queue)) asked (name)
  left join fairqueue.fq_queue q on q.name = asked.name
  left join lateral (
    select (n.*)::fairqueue.fq_queue_state as state, n.heard_open, n.ready_floor, n.ready_channel, n.due_floor,
      n.lease_floor, n.swept_at, n.still_since, n.noted_at,
      case
        when n.heard_below <= pg_snapshot_xmax(pg_current_snapshot()) and age(n.xmin) <= age(n.heard_below::xid) then
          n.heard_below
      end as heard_below
    from fairqueue.fq_queue_state n
    where n.queue = asked.name
    order by n.queue desc, n.row_version desc
    limit 1
  ) d on true
  left join lateral fairqueue.fq_first_ready(
    asked.name, coalesce(d.ready_floor, '-9223372036854775808')::bigint, coalesce(d.ready_channel, 0)::bigint,
    (q.fair_by <> 'messages')::boolean, (q.fair_by = 'seconds')::boolean
  ) f on true;
  v_sight.has_work := v_sight.is_signalled or v_sight.has_expired or v_sight.has_promotions or v_sight.is_due
    or v_sight.has_plans;
  if v_sight.limits is not null and v_sight.first_tag < 0 and not v_sight.has_work then
    v_sight.is_held_back := true = all (
      select (
          select s.contends_until between p_now + 500000 and p_now + 1000000
          from fairqueue.fq_limit_share s
          where s.limit_name = l.name
            and s.queue = p_queue
          order by s.limit_name desc, s.queue desc, s.row_version desc
          limit 1
        )
      from unnest(v_sight.limits) l(name)
    )
    and fairqueue.fq_queue_allows(p_queue, 0::bigint, p_now) <= 0 and not exists (
      select
      from fairqueue.fq_limit f
      where f.name = any (v_sight.limits)
        and f.rate_interval > 0
    );
  end if;
  v_sight.must_attend := v_sight.has_work or v_sight.may_note and v_sight.has_moved
    or v_sight.is_limited and v_sight.first_tag < 0 and v_sight.is_held_back is not true
    and fairqueue.fq_own_room(v_sight.state::fairqueue.fq_queue_state, 1::integer, p_now) > 0;
  return v_sight;
end
$$;
