-- fq_correct_costs: tell the dispatcher what deliveries cost in truth, in the caller's transaction, before it settles
-- them. p_costs: 0 to 1,000,000,000; null: as charged. With p_running, in a queue that is fair by seconds: charge for
-- handlers that still work, whose cost so far is p_costs. p_charged: p_costs of the last such call (null: none).
-- Guarantees: each channel gets one signal with the sum of the costs less what was charged, by which its tag and rates
-- in cost move, and at the end in a queue that is fair by seconds with what messages took, on average, but for those
-- that cost nothing. No message is changed. An outdated token corrects nothing, nor does a delivery of a queue that is
-- fair by messages without a rate in cost. Of several costs of a delivery the last one counts; a second call corrects
-- twice. Settlements of the same statement record these costs in the history, by the setting fq.costs. Locks: none.
-- Index: fq_message_pkey, fq_queue_pkey, fq_limit_pkey, fq_channel_state_newest_ix. Errors: QF001 bad cost; QF007.
-- Source: virtual token counter (Sheng et al. 2024).
create function fairqueue.fq_correct_costs(
  p_queue text, p_ids bigint[], p_lease_ids bigint[], p_deliveries integer[], p_costs bigint[],
  p_charged bigint[] default null, p_running boolean default false
)
returns void
language plpgsql
security definer
as $$
declare
  v_told jsonb;
begin
  perform fairqueue.fq_check_grant(array['consumer']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_correct_costs has cost'::text, u.cost::bigint, 0::bigint, 1000000000::bigint)
  from unnest(p_costs) u(cost)
  where u.cost is not null;
  with told as materialized (
    select distinct on (m.id) m.id, m.channel_id, m.delivered_at, case when not p_running then u.cost end as cost,
      greatest(
        u.cost - greatest(u.charged, fairqueue.fq_charged(m.charged, m.cost::integer)), case when p_running then 0 end
      ) as difference
    from unnest(p_ids, p_lease_ids, p_deliveries, p_costs, p_charged)
      with ordinality u(id, lease_id, deliveries, cost, charged, ord)
    cross join lateral fairqueue.fq_find_delivery(
      p_queue, u.id::bigint, u.lease_id::bigint, u.deliveries::integer
    ) m
    where u.cost is not null
    order by m.id, u.ord desc
  ),
  signalled as (
    insert into fairqueue.fq_signal (queue, channel_id, cost, took)
    select p_queue, t.channel_id, sum(t.difference), avg(t.cost) filter (where t.cost > 0 and q.fair_by = 'seconds')
    from told t
    left join fairqueue.fq_queue q on q.name = p_queue
    where (q.fair_by = 'seconds' or not p_running)
      and (
        q.fair_by <> 'messages'
        or q.rate_of = 'cost'
        or exists (select from fairqueue.fq_limit f where f.name = any (q.limits) and f.rate_of = 'cost')
        or (select s.rate_of from fairqueue.fq_newest_state(t.channel_id) s) = 'cost'
      )
    group by t.channel_id
    having sum(t.difference) <> 0
      or count(*) filter (where t.cost > 0 and q.fair_by = 'seconds') > 0
  )
  select jsonb_object_agg(concat_ws(' ', t.id, t.delivered_at), t.cost)
  into v_told
  from told t
  where num_nonnulls(t.delivered_at, t.cost) = 2;
  if v_told is not null then
    perform set_config('fq.costs', v_told::text, true);
  end if;
end
$$;
