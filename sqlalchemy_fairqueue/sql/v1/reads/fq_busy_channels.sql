-- fq_busy_channels: the channels of a queue that are not idle, each once: those with a message that the dispatcher
-- knows of, a leased message or an unheard signal; and those of p_channels (named). Columns of the state row are what
-- the dispatcher knows; opens_at is its due_at. due_at: when its head is due, or an earlier message of a signal; added,
-- freed, freed_cost: what signals tell; next_cost: of its head, if it has a max_cost_out. changed: the head may be
-- another one by now.
-- Guarantees: one query, which the planner inlines. With p_scan and p_count it reads a bounded part: p_scan channels
-- that are ready and that are due, p_scan signals; p_count leased messages, and the states of p_scan of their channels.
-- Cost: one state row a channel with messages, and the leased messages and signals; of idle channels only dead versions
-- of their states. Locks: none. Index: those of fq_channel_state for what is ready, due and held back; fq_signal_pkey,
-- fq_lease_expires_ix, fq_message_lease_ix. Errors: none.
create function fairqueue.fq_busy_channels(p_queue text, p_channels text[], p_scan integer, p_count integer)
returns table (
  channel_id bigint, max_concurrency integer, rate_interval bigint, rate_burst integer, rate_at bigint, weight integer,
  paused_at bigint, last_dequeue_at bigint, backlog bigint, current_concurrency integer, head_dequeue_at bigint,
  opens_at bigint, due_at bigint, added bigint, freed bigint, freed_cost bigint, leased bigint, changed boolean,
  named boolean, rate_of text, max_cost_out integer, current_cost bigint, next_cost bigint
)
language sql
stable
as $$
  with moved as materialized (
    select u.channel_id, min(u.due_at) as due_at, sum(u.added)::bigint as added, sum(u.freed)::bigint as freed,
      sum(u.freed_cost)::bigint as freed_cost, sum(u.leased)::bigint as leased, bool_or(u.changed) as changed,
      bool_or(u.named) as named, bool_or(u.is_read) as is_read
    from (
      (
        select g.channel_id, g.dequeue_at as due_at, g.added, g.freed, coalesce(g.freed_cost, 0) as freed_cost,
          0::bigint as leased, true as changed, false as named, true as is_read
        from fairqueue.fq_signal g
        where g.queue = p_queue
        order by g.queue, g.xid, g.id
        limit p_scan
      )
      union all
      select o.channel_id, null, 0, 0, 0, count(*), true, false,
        (row_number() over (order by count(*) desc, o.channel_id) <= p_scan) is not false
      from (
        select m.channel_id
        from (
          select e.id
          from fairqueue.fq_lease e
          where e.queue = p_queue
          order by e.queue, e.expires_at
          limit p_count
        ) l
        join fairqueue.fq_message m on m.lease_id = l.id
        limit p_count
      ) o
      group by o.channel_id
      union all
      select c.id, null, 0, 0, 0, 0, false, true, true
      from unnest(p_channels) p(name)
      cross join lateral fairqueue.fq_find_channel(p_queue, p.name::text) c
    ) u
    group by u.channel_id
  )
  select m.channel_id, s.max_concurrency, coalesce(s.rate_interval, 0), coalesce(s.rate_burst, 1), s.rate_at,
    case when m.is_read then coalesce(s.weight, 1) end, s.paused_at, s.last_dequeue_at, coalesce(s.backlog, 0),
    coalesce(s.current_concurrency, 0), s.head_dequeue_at, s.due_at, least(s.head_dequeue_at, m.due_at), m.added,
    m.freed, m.freed_cost, m.leased, m.changed or (num_nonnulls(s.priority_aging) = 1 or s.head_dequeue_at < 0) is true,
    m.named, coalesce(s.rate_of, 'messages'), s.max_cost_out, coalesce(s.current_cost, 0),
    case when s.max_cost_out is not null then fairqueue.fq_head_cost(p_queue, s.head_message_id, s.mean_cost) end
  from moved m
  left join lateral fairqueue.fq_newest_state((case when m.is_read then m.channel_id end)::bigint) s on true
  union all
  select s.channel_id, s.max_concurrency, s.rate_interval, s.rate_burst, s.rate_at, s.weight, s.paused_at,
    s.last_dequeue_at, s.backlog, s.current_concurrency, s.head_dequeue_at, s.due_at, s.head_dequeue_at, 0, 0, 0, 0,
    (num_nonnulls(s.priority_aging) = 1 or s.head_dequeue_at < 0) is true, false, s.rate_of, s.max_cost_out,
    s.current_cost,
    case when s.max_cost_out is not null then fairqueue.fq_head_cost(p_queue, s.head_message_id, s.mean_cost) end
  from (
    (
      select r.*
      from fairqueue.fq_channel_state r
      where r.queue = p_queue
        and r.ready_tag is not null
      order by r.queue, r.ready_tag
      limit p_scan
    )
    union all
    (
      select d.*
      from fairqueue.fq_channel_state d
      where d.queue = p_queue
        and d.due_at is not null
      order by d.queue, d.due_at
      limit p_scan
    )
    union all
    select b.*
    from fairqueue.fq_channel_state b
    where b.queue = p_queue
      and b.head_message_id is not null
      and b.ready_tag is null
      and b.due_at is null
      and p_scan is null
  ) s
  -- Hashed: with old statistics a join could compare all with all.
  where s.channel_id not in (select m.channel_id from moved m)
$$;
