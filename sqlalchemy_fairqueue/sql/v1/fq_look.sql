-- fq_look: what a dequeue finds before it writes anything: the settings of the queue, the newest state of its
-- dispatcher, the epoch of the server; whether there are signals that nobody has heard, expired leases, promotions and
-- channels that are due, changed plans that are not with all of their channels; has_work: whether there is any of these;
-- is_limited: whether the queue has a limit; the first ready channel, and where it will stand after one message (null:
-- there is none).
-- Guarantees: one statement, one snapshot. A state that came out of a dump may name transactions of another server: its
-- row is not younger than they are, and all signals count as unheard then.
-- Locks: none. Index: fq_queue_pkey, fq_queue_state_newest_ix, fq_signal_pkey, fq_lease_expires_ix,
-- fq_promotion_due_ix, fq_channel_state_ready_ix, fq_channel_state_due_ix, fq_message_pkey. Errors: none.
create function fairqueue.fq_look(p_queue text, p_now bigint)
returns record
language plpgsql
volatile
as $$
declare
  v_sight record;
begin
  select (q.*)::fairqueue.fq_queue as settings, d.state,
    (select e.value from fairqueue.fq_epoch e where e.one and e.xmin = e.written_by) as epoch,
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
    false as has_work, (num_nonnulls(q.max_concurrency, q.limits) > 0 or q.rate_interval > 0) is true as is_limited,
    f.tag as first_tag, f.channel_id as first_channel,
    fairqueue.fq_turn(f.tag, f.tag_rest, f.weight, f.head_message_id, (q.fair_by <> 'messages')::boolean) as turn
  into v_sight
  from (values (p_queue)) asked (name)
  left join fairqueue.fq_queue q on q.name = asked.name
  left join lateral (
    select (n.*)::fairqueue.fq_queue_state as state, n.heard_open, n.ready_floor, n.ready_channel, n.due_floor,
      n.lease_floor, n.swept_at,
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
    asked.name, coalesce(d.ready_floor, '-9223372036854775808')::bigint, coalesce(d.ready_channel, 0)::bigint
  ) f on true;
  v_sight.has_work := v_sight.is_signalled or v_sight.has_expired or v_sight.has_promotions or v_sight.is_due
    or v_sight.has_plans;
  return v_sight;
end
$$;
