-- fq_queue_allows: how many further messages a queue lets its consumers take now (null: any number): none while it is
-- paused; else what its max_concurrency, its rate and its shared limits leave; below 0 if more are out. p_freed: slots
-- that unheard signals free. A quota in cost counts only when it is used up.
-- Guarantees: as fq_queue_room, but it draws nothing, and leaves no part of a shared limit to other queues.
-- Cost: one probe a limit, and one more for each of the queues that share it. Locks: none.
-- Index: fq_queue_pkey, fq_queue_state_newest_ix, fq_limit_pkey; those of fq_limit_members.
-- Errors: none.
create function fairqueue.fq_queue_allows(p_queue text, p_freed bigint, p_now bigint)
returns bigint
language sql
stable
as $$
  select case
    when q.paused_at is not null then 0
    else least(
      n.max_concurrency - n.current_concurrency + coalesce(p_freed, 0),
      fairqueue.fq_rate_room(p_now, n.rate_at, n.rate_interval, n.rate_burst),
      case when n.current_cost >= n.max_cost_out then 0 end,
      (
        select min(
          least(
            f.max_concurrency - m.messages_out + coalesce(p_freed, 0),
            fairqueue.fq_rate_room(p_now, m.rate_at, f.rate_interval, f.rate_burst),
            case when m.cost_out >= f.max_cost_out then 0 end
          )
        )
        from fairqueue.fq_limit f
        cross join lateral (
          select sum(x.messages_out) as messages_out, sum(x.cost_out) as cost_out, min(x.rate_at) as rate_at
          from fairqueue.fq_limit_members(f.name::text) x
        ) m
        where f.name = any (q.limits)
      )
    )
  end
  from (values (p_queue)) asked(name)
  left join fairqueue.fq_queue q on q.name = asked.name
  left join fairqueue.fq_newest_dispatch(p_queue) n on true
$$;
