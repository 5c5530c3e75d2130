"""Invariants of every snapshot, as SQL that returns one row for each violation. docs/invariants.md describes them."""

HELD = """
with state as (
  select s.*, c.name, n.held, n.held_cost, n.waiting, g.signals, g.added, g.freed, g.freed_cost,
    (select m.cost from fq_message m where m.id = s.head_message_id) as next_cost
  from fq_channel_state s
  left join fq_channel c on c.id = s.channel_id
  cross join lateral (
    select coalesce(sum(m.slots & 1), 0) as held, count(*) filter (where m.lease_id is null) as waiting,
      coalesce(sum((m.slots & 1) * coalesce(m.charged, m.cost, 1)), 0) as held_cost
    from fq_message m
    where m.channel_id = s.channel_id
  ) n
  cross join lateral (
    select count(*) as signals, coalesce(sum(g.added), 0) as added, coalesce(sum(g.freed), 0) as freed,
      coalesce(sum(g.freed_cost), 0) as freed_cost
    from fq_signal g
    where g.channel_id = s.channel_id
  ) g
  where s.queue = 'model'
)
select format('I9: channel %s has %s state rows', c.name, count(s.channel_id))
from fq_channel c
left join fq_channel_state s on s.channel_id = c.id
where c.queue = 'model'
group by c.id
having count(s.channel_id) <> 1
union all
select format('I9: a state row of channel %s, which is not there', s.channel_id)
from state s
where s.name is null
union all
select format('I5: channel %s counts %s, but %s slots are held and %s freed ones unheard',
  s.name, s.current_concurrency, s.held, s.freed)
from state s
where s.current_concurrency <> s.held + s.freed
union all
select format('I37: channel %s counts a cost of %s, but slots of %s are held and of %s freed and unheard',
  s.name, s.current_cost, s.held_cost, s.freed_cost)
from state s
where s.current_cost <> s.held_cost + s.freed_cost
union all
select format('I7: message %s of channel %s at %s is before the head (%s, %s), and no signal tells of it',
  m.id, s.name, m.dequeue_at, s.head_dequeue_at, s.head_message_id)
from fq_message m
join state s on s.channel_id = m.channel_id
where m.lease_id is null
  and coalesce((m.dequeue_at, m.id) < (s.head_dequeue_at, s.head_message_id), true)
  and not exists (
    select
    from fq_signal g
    where g.channel_id = m.channel_id
      and (g.dequeue_at, g.message_id) <= (m.dequeue_at, m.id)
  )
union all
select format('I8: channel %s has the head (%s, %s), stands at %s and waits until %s',
  s.name, s.head_dequeue_at, s.head_message_id, s.ready_tag, s.due_at)
from state s
where num_nulls(s.head_dequeue_at, s.head_message_id) = 1
  or num_nonnulls(s.ready_tag, s.due_at) <> case
    when coalesce(s.head_dequeue_at, 9223372036854775807) = 9223372036854775807 or s.paused_at is not null
      or s.current_concurrency >= s.max_concurrency then 0
    else 1
  end
  -- What its quota holds back may stand: the next dequeue finds that out.
  and (s.current_cost > 0 and s.current_cost + coalesce(s.next_cost, 1) > s.max_cost_out) is not true
  and s.signals = 0
union all
select format('I8: channel %s is put off until %s, head %s, rate %s',
  s.name, s.due_at, s.head_dequeue_at, s.rate_at)
from state s
where s.due_at > greatest(s.head_dequeue_at, (select last_value from public.test_clock) + 11000, s.rate_at)
union all
select format('I8: channel %s stands at %s, before the floor (%s, %s)',
  s.name, s.ready_tag, d.ready_floor, d.ready_channel)
from state s
join fq_queue_state d on d.queue = s.queue
where (s.ready_tag, s.channel_id) < (d.ready_floor, d.ready_channel)
union all
select format('I8: channel %s waits until %s, before the floor %s, and no signal tells of it',
  s.name, s.due_at, d.due_floor)
from state s
join fq_queue_state d on d.queue = s.queue
where s.due_at < least(d.due_floor, (select last_value from public.test_clock))
  and s.signals = 0
union all
select format('I8: a signal of transaction %s is below the floor %s, and not one of %s',
  g.xid, d.heard_below, d.heard_open)
from fq_signal g
join fq_queue_state d on d.queue = g.queue
where g.queue = 'model'
  and g.xid < d.heard_below
  and g.xid <> all (d.heard_open)
union all
select format('I4: channel %s stands at %s, and its start tag is %s', s.name, s.ready_tag, s.tag)
from state s
where s.ready_tag <> s.tag
union all
select format('I29: message %s of channel %s has a priority and is due at %s, and nobody will promote it',
  m.id, s.name, m.dequeue_at)
from fq_message m
join state s on s.channel_id = m.channel_id
where m.priority is not null
  and m.dequeue_at > (select last_value from public.test_clock)
  and m.dequeue_at < 9223372036854775807
  and not exists (
    select
    from fq_promotion p
    where (p.queue, p.due_at, p.message_id) = (s.queue, m.dequeue_at, m.id)
  )
union all
select format('I2: message %s is held under lease %s, which is not there to expire', m.id, m.lease_id)
from fq_message m
where m.lease_id is not null
  and not exists (select from fq_lease l where l.id = m.lease_id)
union all
select format('I2: message %s is in nobody''s hands and holds %s slots', m.id, m.slots)
from fq_message m
where m.lease_id is null
  and m.slots <> 0
union all
select format('I10: message %s is present and dead', m.id)
from fq_message m
join fq_dead_letter d on d.message_id = m.id
union all
select format('I17: the backlog of channel %s is %s and %s added, but %s messages are in nobody''s hands',
  s.name, s.backlog, s.added, s.waiting)
from state s
where s.backlog + s.added <> s.waiting
union all
select format('I18: the queue counts %s of cost %s, but %s slots of cost %s are held and %s of %s freed and unheard',
  q.current_concurrency, q.current_cost, n.held, n.held_cost, g.freed, g.freed_cost)
from fq_queue_state q
cross join (
  select coalesce(sum(m.slots >> 1), 0) as held,
    coalesce(sum((m.slots >> 1) * coalesce(m.charged, m.cost, 1)), 0) as held_cost
  from fq_message m
  join fq_channel c on c.id = m.channel_id
  where c.queue = 'model'
) n
cross join (
  select coalesce(sum(g.queue_freed), 0) as freed, coalesce(sum(g.queue_freed_cost), 0) as freed_cost
  from fq_signal g
  where g.queue = 'model'
) g
where q.queue = 'model'
  and (q.current_concurrency, q.current_cost) <> (n.held + g.freed, n.held_cost + g.freed_cost)
union all
select format('I18: the queue has %s state rows', count(*))
from fq_queue_state q
where q.queue = 'model'
having count(*) > 1
union all
select format('I21: channel %s has heard signal %s, the last one made is %s', s.name, s.heard_id, q.last_value)
from state s
cross join fq_signal_id_seq q
where s.heard_id > q.last_value
union all
select format('I2: message %s was withdrawn and is in nobody''s hands', m.id)
from fq_message m
where m.cancelled
  and m.lease_id is null
union all
select format('I36: %s messages of ordering key %s are out', count(*), m.ordering_key)
from fq_message m
where m.ordering_key is not null
  and m.lease_id is not null
group by m.channel_id, m.ordering_key
-- A batch is out at its first attempt, under one lease.
having count(*) > 1
  and (count(distinct m.lease_id) > 1 or max(m.attempts) > 1)
union all
select format('I36: message %s is held back, comes first of ordering key %s, and no signal tells of it',
  m.id, m.ordering_key)
from fq_message m
where m.dequeue_at = 9223372036854775807
  and m.lease_id is null
  and not exists (
    select
    from fq_message o
    where (o.channel_id, o.ordering_key) = (m.channel_id, m.ordering_key)
      and (o.lease_id is not null, o.deliveries > 0, -o.id) > (m.lease_id is not null, m.deliveries > 0, -m.id)
  )
  and not exists (
    select
    from fq_signal g
    where (g.channel_id, g.ordering_key) = (m.channel_id, m.ordering_key)
  )
"""

LEFT = """
select 'I8: message ' || m.id from fq_message m join fq_channel c on c.id = m.channel_id where c.queue = 'model'
union all
select 'I8: signal ' || g.id from fq_signal g where g.queue = 'model'
union all
select format('I8: state of channel %s: current %s, ready at %s', s.channel_id, s.current_concurrency, s.ready_tag)
from fq_channel_state s
where s.queue = 'model'
  and (s.current_concurrency <> 0 or num_nonnulls(s.ready_tag, s.due_at) > 0)
union all
select 'I8: lease ' || l.id from fq_lease l where l.queue = 'model'
union all
select format('I17: backlog of channel %s: %s', s.channel_id, s.backlog)
from fq_channel_state s
where s.queue = 'model'
  and s.backlog <> 0
union all
select format('I18: count of the queue: %s', q.current_concurrency)
from fq_queue_state q
where q.queue = 'model'
  and q.current_concurrency <> 0
"""
