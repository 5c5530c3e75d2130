-- fq_charge_running: charge the channels of a queue that is fair by seconds for deliveries that handlers still work on,
-- beyond what was charged for them before. p_costs: their cost so far, 0 to 1,000,000,000 ms; p_charged: p_costs of the
-- last call for each (0: there was none). Whoever settles them tells fq_correct_costs what was charged.
-- Guarantees: each channel gets one signal of the sum, which the next dequeue hears. A delivery with another token than
-- the newest one charges nothing, nor does one of another queue. No message is changed, so no transaction that works on
-- one fails by it.
-- Locks: none. Index: fq_message_pkey. Errors: QF001 bad cost; QF007.
create function fairqueue.fq_charge_running(
  p_queue text, p_ids bigint[], p_lease_ids bigint[], p_deliveries integer[], p_costs bigint[], p_charged bigint[]
)
returns void
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_charge_running has cost'::text, u.cost::bigint, 0::bigint, 1000000000::bigint)
  from unnest(p_costs) u(cost)
  where u.cost is not null;
  insert into fairqueue.fq_signal (queue, channel_id, cost)
  select p_queue, r.channel_id, sum(r.more)
  from (
    select m.channel_id, u.cost - greatest(u.charged, fairqueue.fq_charged(m.charged, m.cost::integer)) as more
    from unnest(p_ids, p_lease_ids, p_deliveries, p_costs, p_charged) u(id, lease_id, deliveries, cost, charged)
    cross join lateral fairqueue.fq_find_delivery(
      p_queue, u.id::bigint, u.lease_id::bigint, u.deliveries::integer
    ) m
    where (select q.fair_by from fairqueue.fq_queue q where q.name = p_queue) = 'seconds'
  ) r
  where r.more > 0
  group by r.channel_id;
end
$$;
