-- By queue and kind, how many messages died within :period microseconds, how many were tried in vain :attempts times or
-- more, how many were given back as often without a counted attempt, and the last line of one of their errors; :queue
-- null is all queues. A message counts as given back if it came back with a delay and without an error. Workers that do
-- not know its kind release it like that; a worker that stops gives messages back without a delay. Reads the dead
-- letters of the period by their index, and the :most oldest messages.
with deaths as (
  select d.queue, d.kind, count(*) as died, max(d.error) as error
  from fairqueue.fq_queues() q (name)
  join fairqueue.fq_dead_letter d
    on d.queue = q.name
    and d.died_at > fairqueue.fq_now() - :period
  group by d.queue, d.kind
),
oldest as (
  select m.channel_id, m.kind, m.error,
    m.attempts - (m.lease_id is not null)::integer >= :attempts as is_tried,
    m.deliveries - m.attempts >= :attempts and m.dequeue_at > m.returned_at and m.error is null as is_returned
  from fairqueue.fq_message m
  order by m.id
  limit :most
),
tries as (
  select c.queue, o.kind, max(o.error) as error,
    count(*) filter (where o.is_tried) as tried,
    count(*) filter (where o.is_returned) as returned
  from oldest o
  join fairqueue.fq_channel c on c.id = o.channel_id
  where o.is_tried
    or o.is_returned
  group by c.queue, o.kind
)
select
  coalesce(d.queue, t.queue) as queue,
  coalesce(d.kind, t.kind) as kind,
  coalesce(d.died, 0) as died,
  coalesce(t.tried, 0) as tried,
  coalesce(t.returned, 0) as returned,
  regexp_replace(rtrim(coalesce(d.error, t.error), E'\n '), '^.*\n', '') as error
from deaths d
full join tries t
  on t.queue = d.queue
  and t.kind = d.kind
where cast(:queue as text) is null
  or coalesce(d.queue, t.queue) = :queue
order by died desc, tried desc, returned desc, queue, kind
limit 20
