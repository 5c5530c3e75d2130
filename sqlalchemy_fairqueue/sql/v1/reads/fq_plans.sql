-- fq_plans: the plans of a queue, by name, with their policies, the number of channels that follow each, and whether
-- all of these have its last change (spread). p_name: only this plan (null: all).
-- Guarantees: one snapshot. Cost: an index entry a channel that follows one.
-- Locks: none. Index: fq_plan_pkey, fq_channel_plan_followers_ix. Errors: QF007.
create function fairqueue.fq_plans(p_queue text, p_name text default null)
returns table (name text, policy jsonb, channels bigint, is_default boolean, spread boolean)
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  return query
  select n.name, n.policy, f.channels, (q.default_plan = n.name) is true, num_nulls(n.spread_after) = 1
  from fairqueue.fq_plan n
  left join fairqueue.fq_queue q on q.name = n.queue
  cross join lateral (
    select count(*) as channels
    from fairqueue.fq_channel_plan o
    where o.queue = n.queue
      and o.plan = n.name
  ) f
  where n.queue = p_queue
    and (p_name is null or n.name = p_name)
  order by n.name;
end
$$;
