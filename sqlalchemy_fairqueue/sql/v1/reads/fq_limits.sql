-- fq_limits: the shared limits, by name. queues: those that draw from it; leased: how many leased messages each has;
-- contending: which of them the limit held back at their last dequeue; current_concurrency, current_cost: the leased
-- messages of all, and what they cost; rate_allows_at: when the rate allows the next message. p_name: only this limit;
-- p_queue: only those that this queue draws from; null: all.
-- Guarantees: one snapshot of each limit. rate_interval 0: no rate. Locks: none. Index: fq_limit_pkey, fq_queue_pkey;
-- those of fq_limit_members. Errors: QF007: for monitors and operators of p_queue, or else of all queues.
create function fairqueue.fq_limits(p_name text, p_queue text default null)
returns table (
  name text, max_concurrency integer, max_cost_out integer, rate_interval bigint, rate_burst integer, rate_of text,
  rate_allows_at bigint, current_concurrency bigint, current_cost bigint, queues text[], leased bigint[],
  contending text[]
)
language plpgsql
security definer
as $$
begin
  perform fairqueue.fq_check_grant(array['monitor', 'operator']::text[], p_queue, null::text[]);
  return query
  select f.name, f.max_concurrency, f.max_cost_out, f.rate_interval, f.rate_burst, f.rate_of,
    fairqueue.fq_rate_allows_at(coalesce(m.rate_at, 0)::bigint, f.rate_interval, f.rate_burst),
    coalesce(m.messages_out, 0)::bigint, coalesce(m.cost_out, 0)::bigint, coalesce(m.queues, '{}'),
    coalesce(m.leased, '{}'), coalesce(m.contending, '{}')
  from fairqueue.fq_limit f
  cross join lateral (
    select sum(x.messages_out) as messages_out, sum(x.cost_out) as cost_out, min(x.rate_at) as rate_at,
      array_agg(x.queue order by x.queue) as queues,
      array_agg(x.messages_out order by x.queue) as leased,
      array_agg(x.queue order by x.queue) filter (where x.contends_until > fairqueue.fq_now()) as contending
    from fairqueue.fq_limit_members(f.name::text) x
  ) m
  where (p_name is null or f.name = p_name)
    and (
      p_queue is null
      or f.name = any (
        (
          select q.limits
          from fairqueue.fq_queue q
          where q.name = p_queue
        )::text[]
      )
    )
  order by f.name;
end
$$;
