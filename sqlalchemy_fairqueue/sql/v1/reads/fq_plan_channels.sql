-- fq_plan_channels: up to p_limit channels that follow a plan, by their ids, after the id p_after (null: from the first
-- one on), each with the fields of its policy that were configured for it alone (overridden).
-- Guarantees: one snapshot.
-- Locks: none. Index: fq_channel_plan_followers_ix, fq_channel_pkey. Errors: QF001 bad limit; QF007.
create function fairqueue.fq_plan_channels(p_queue text, p_plan text, p_after bigint, p_limit integer)
returns table (channel_id bigint, channel text, overridden text[])
language plpgsql
stable
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  perform fairqueue.fq_check_number('fq_plan_channels has limit'::text, p_limit::bigint, 1::bigint, null::bigint);
  return query
  select c.id, c.name, o.overridden
  from fairqueue.fq_channel_plan o
  join fairqueue.fq_channel c on c.id = o.channel_id
  where o.queue = p_queue
    and o.plan = p_plan
    and o.channel_id > coalesce(p_after, 0)
  order by o.channel_id
  limit p_limit;
end
$$;
