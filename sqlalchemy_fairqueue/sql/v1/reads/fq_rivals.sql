-- fq_rivals: what is known of the channels that compete with some channels of a queue, p_channels, and of these (named).
-- messages: how many of a channel are out; due: it may compete; weight: null where it is not read yet; added, freed,
-- queue_freed: what signals say; since: of named channels, as fq_waits_since; cost: as fq_recent_costs of p_cost_queue,
-- whose sum is the row without a channel.
-- Guarantees: one query, which the planner inlines. The bounds p_scan and p_count are those of fq_channel_contention.
-- Locks: none. Index: as fq_channel_contention. Errors: none.
create function fairqueue.fq_rivals(
  p_queue text, p_channels text[], p_cost_queue text, p_now bigint, p_scan integer, p_count integer
)
returns table (
  channel_id bigint, weight integer, messages bigint, due boolean, added bigint, freed bigint, queue_freed bigint,
  named boolean, since bigint, cost bigint
)
language sql
stable
as $$
  with held as materialized (
    select o.channel_id, count(*) as messages, row_number() over (order by count(*) desc, o.channel_id) as place
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
  ),
  named as materialized (
    select c.id as channel_id, w.since
    from unnest(p_channels) p(name)
    -- With a limit, or PostgreSQL 15 reads all channels of the queue.
    cross join lateral (
      select f.id
      from fairqueue.fq_channel f
      where f.queue = p_queue
        and f.name = p.name
      limit 1
    ) c
    cross join lateral fairqueue.fq_waits_since(c.id::bigint, p_now, p_scan::bigint) w
  )
  select k.channel_id, max(k.weight), max(k.messages), bool_or(k.due), sum(k.added)::bigint, sum(k.freed)::bigint,
    sum(k.queue_freed)::bigint, bool_or(k.named), max(k.since), max(k.cost)
  from (
    -- Of a ready channel the weight is read with the ready order.
    (
      select s.channel_id, s.weight, null::bigint as messages, true as due, 0 as added, 0 as freed, 0 as queue_freed,
        false as named, null::bigint as since, null::bigint as cost
      from fairqueue.fq_channel_state s
      where s.queue = p_queue
        and s.ready_tag is not null
      order by s.queue, s.ready_tag
      limit p_scan
    )
    union all
    (
      select s.channel_id, s.weight, null, true, 0, 0, 0, false, null, null
      from fairqueue.fq_channel_state s
      where s.queue = p_queue
        and s.due_at <= p_now
      order by s.queue, s.due_at
      limit p_scan
    )
    union all
    -- Hashed: as a condition, a bare "in" would be a join, which compares all with all here.
    select h.channel_id, null, h.messages,
      h.place <= p_scan or (h.channel_id in (select n.channel_id from named n)) is true, 0, 0, 0, false, null, null
    from held h
    union all
    (
      select g.channel_id, null, null, (g.dequeue_at <= p_now) is true, g.added, g.freed, g.queue_freed, false, null,
        null
      from fairqueue.fq_signal g
      where g.queue = p_queue
      order by g.queue, g.xid, g.id
      limit p_scan
    )
    union all
    select n.channel_id, null, null, n.since is not null, 0, 0, 0, true, n.since, null
    from named n
    union all
    select r.channel_id, null, null, false, 0, 0, 0, false, null, r.cost
    from fairqueue.fq_recent_costs(p_cost_queue) r
  ) k
  group by k.channel_id
$$;
