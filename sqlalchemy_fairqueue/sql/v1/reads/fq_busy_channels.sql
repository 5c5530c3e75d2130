-- fq_busy_channels: the channels of a queue that are not idle, each once: those with a message that the dispatcher
-- knows of, with a leased message, or with a signal that nobody has heard; and those of p_channels (named). added, freed
-- and queue_freed: what such signals will add to the backlog, and free of the slots; due_at: when the first message is
-- due that they tell of; leased: messages out. changed: it has one or the other.
-- Guarantees: one query, which the planner inlines. With p_scan and p_count it reads a bounded part: so many ready and
-- due channels, those served next, and signals, the first ones; so many messages out, those whose leases expire first.
-- among: whether it is none of the channels of these beyond p_scan, those with the fewest.
-- Cost: one index entry a channel with messages, and what the queue has of leased messages and signals not heard. Idle
-- channels are not read, but for the versions of their state that an old snapshot keeps, one a turn since then.
-- Locks: none. Index: fq_channel_state_ready_ix, fq_channel_state_due_ix, and fq_channel_state_held_back_ix for those
-- that are paused or at their limit; fq_signal_pkey, fq_lease_expires_ix, fq_message_lease_ix,
-- fq_channel_queue_name_key. Errors: none.
create function fairqueue.fq_busy_channels(
  p_queue text, p_channels text[] default null, p_scan integer default null, p_count integer default null
)
returns table (
  channel_id bigint, due_at bigint, added bigint, freed bigint, queue_freed bigint, leased bigint, changed boolean,
  named boolean, among boolean
)
language sql
stable
as $$
  select k.channel_id, min(k.due_at), sum(k.added)::bigint, sum(k.freed)::bigint, sum(k.queue_freed)::bigint,
    sum(k.leased)::bigint, bool_or(k.changed), bool_or(k.named), bool_or(k.among)
  from (
    (
      select r.channel_id, null::bigint as due_at, 0 as added, 0 as freed, 0 as queue_freed, 0::bigint as leased,
        false as changed, false as named, true as among
      from fairqueue.fq_channel_state r
      where r.queue = p_queue
        and r.ready_tag is not null
      order by r.queue, r.ready_tag
      limit p_scan
    )
    union all
    (
      select d.channel_id, null, 0, 0, 0, 0, false, false, true
      from fairqueue.fq_channel_state d
      where d.queue = p_queue
        and d.due_at is not null
      order by d.queue, d.due_at
      limit p_scan
    )
    union all
    select b.channel_id, null, 0, 0, 0, 0, false, false, true
    from fairqueue.fq_channel_state b
    where b.queue = p_queue
      and b.head_message_id is not null
      and b.ready_tag is null
      and b.due_at is null
      and p_scan is null
    union all
    (
      select g.channel_id, g.dequeue_at, g.added, g.freed, g.queue_freed, 0, true, false, true
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
    -- With a limit, or PostgreSQL 15 reads all channels of the queue.
    cross join lateral (
      select f.id
      from fairqueue.fq_channel f
      where f.queue = p_queue
        and f.name = p.name
      limit 1
    ) c
  ) k
  group by k.channel_id
$$;
