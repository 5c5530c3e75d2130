"""Sweep through the events of a history in time: backlog, concurrency and starvation of channels.

An attempt has three events: ready, started, finished. Time is cut into buckets, each sorted by itself, so that a queue
or a channel with most of the rows is distributed over all tasks. A bucket begins with opening rows, which carry over
the counts of the buckets before (as sums of sums), and ends with closing rows. Figures across buckets are combined from
one row a bucket.

Sweep line: M. I. Shamos, D. Hoey, "Geometric intersection problems", 1976. Sums over sums: G. E. Blelloch, "Prefix sums
and their applications", 1990.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.reporting.time_grid import Grid
    from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries

# Kinds of events in their order at one instant: an end makes room for a start. An attempt without duration does not
# count for concurrency.
_EVENTS = """
select queue, channel, e.at div :bucket as bucket, e.at, e.kind, e.waiting, e.held
from {attempts}
lateral view stack(3,
  ready, 1, 1, 0,
  started, 2, -1, cast(service > 0 as int),
  finished, 0, 0, -cast(service > 0 as int)
) e as at, kind, waiting, held
"""
_BALANCES = """
select queue, channel, bucket, sum(waiting) as waiting, sum(held) as held
from {events}
group by queue, channel, bucket
"""
_OPENINGS = """
select queue, channel, bucket, coalesce(sum(waiting) over before, 0) as waiting,
  coalesce(sum(held) over before, 0) as held
from {balances}
window before as (partition by queue, channel order by bucket rows between unbounded preceding and 1 preceding)
"""
_QUEUE_OPENINGS = """
select queue, bucket, coalesce(sum(held) over before, 0) as held
from (
  select queue, bucket, sum(held) as held
  from {balances}
  group by queue, bucket
)
window before as (partition by queue order by bucket rows between unbounded preceding and 1 preceding)
"""
# Rows without a channel are of the queue itself.
_ALL_EVENTS = """
select queue, channel, bucket, at, kind, waiting, held, held as queue_held
from {events}
union all
select queue, channel, bucket, bucket * :bucket, -1, waiting, held, 0
from {openings}
union all
select queue, channel, bucket, (bucket + 1) * :bucket, 3, 0, 0, 0
from {openings}
union all
select queue, null, bucket, bucket * :bucket, -2, 0, 0, held
from {queue_openings}
union all
select queue, null, bucket, (bucket + 1) * :bucket, 4, 0, 0, 0
from {queue_openings}
"""
# served: the time since the start of the bucket in which a channel of the queue was served.
_SERVED = """
with steps as (
  select *, at - lag(at) over whole as step, coalesce(sum(queue_held) over before, 0) as held_before
  from {events}
  window whole as (partition by queue, bucket order by at, kind),
    before as (partition by queue, bucket order by at, kind rows between unbounded preceding and 1 preceding)
)
select queue, channel, bucket, at, kind, waiting, held,
  sum(case when held_before > 0 then step else 0 end) over until_now as served,
  max(held_before + queue_held) over until_now as queue_concurrency
from steps
window until_now as (partition by queue, bucket order by at, kind rows between unbounded preceding and current row)
"""
_STATES = """
with before as (
  select *, at - lag(at) over whole as step, served - lag(served) over whole as served_step,
    coalesce(sum(waiting) over before, 0) as waiting_before, coalesce(sum(held) over before, 0) as held_before
  from {events}
  window whole as (partition by queue, bucket, channel order by at, kind),
    before as (partition by queue, bucket, channel order by at, kind rows between unbounded preceding and 1 preceding)
),
states as (
  select *, waiting_before > 0 and held_before = 0 as starving,
    waiting_before + waiting > 0 and held_before + held = 0 as starving_after
  from before
)
select *,
  last(
    case when kind between 0 and 2 and starving_after and (kind = 2 or not starving) then struct(served, at) end, true
  ) over before as begun
from states
window before as (
  partition by queue, bucket, channel order by at, kind rows between unbounded preceding and 1 preceding
)
"""
_CELLS = """
select queue, channel, bucket, max(served) as served, max(queue_concurrency) as queue_concurrency,
  sum(case when waiting_before > 0 then step else 0 end) as backlogged,
  sum(case when starving then served_step else 0 end) as starved,
  max(held_before + held) as concurrency,
  max(case when kind = 2 and starving and begun is not null
    then struct(served - begun.served as lasted, begun.at as begin, at as end) end) as longest,
  max(case when kind = 2 and starving and begun is null then struct(served, at) end) as ended,
  max(case when kind = 3 and starving then begun end) as open,
  max(case when kind = 3 then waiting_before end) > 0 as waits_on,
  bool_or(kind = 3 and starving) as starves_on
from {states}
group by queue, bucket, channel
"""
# served_before: the time before the bucket in which a channel of the queue was served. A queue without an event in a
# bucket was served all through it if a message was leased.
_CLOCKS = """
select /*+ broadcast(o) */ c.queue, c.bucket, c.served, c.queue_concurrency,
  coalesce(sum(c.served) over before, 0) + sum(
    case when o.held > 0 then coalesce(c.bucket - c.last_bucket - 1, 0) * :bucket else 0 end
  ) over (partition by c.queue order by c.bucket) as served_before
from (
  select queue, bucket, served, queue_concurrency, lag(bucket) over (partition by queue order by bucket) as last_bucket
  from {cells}
  where channel is null
) c
join {queue_openings} o on o.queue = c.queue and o.bucket = c.bucket
window before as (partition by c.queue order by c.bucket rows between unbounded preceding and 1 preceding)
"""
_CHANNELS = """
with placed as (
  select /*+ broadcast(k) */ c.*, k.served_before, k.served_before + k.served as served_until,
    lead(c.bucket) over following as next_bucket, lead(k.served_before) over following as next_served,
    last(case when c.open is not null then struct(c.open.served + k.served_before as served, c.open.at as at) end, true)
      over before as open_before
  from {cells} c
  join {clocks} k on k.queue = c.queue and k.bucket = c.bucket
  where c.channel is not null
  window following as (partition by c.queue, c.channel order by c.bucket),
    before as (partition by c.queue, c.channel order by c.bucket rows between unbounded preceding and 1 preceding)
)
select queue, channel, max(concurrency) as concurrency,
  sum(backlogged + case when waits_on then (next_bucket - bucket - 1) * :bucket else 0 end) as backlogged,
  sum(starved + case when starves_on then next_served - served_until else 0 end) as starved,
  greatest(max(longest), max(case when ended is not null
    then struct(ended.served + served_before - open_before.served as lasted, open_before.at as begin, ended.at as end)
  end)) as longest
from placed
group by queue, channel
"""
_QUEUES = """
select queue, max(served_before + served) as served, max(queue_concurrency) as concurrency
from {clocks}
group by queue
"""


class Sweep:
    """A sweep through the events of some attempts.

    Args:
        attempts: A row an attempt.
        grid: The time grid.
        queries: Runs the queries, and persists frames that are used twice.
    """

    def __init__(self, attempts: DataFrame, grid: Grid, queries: SparkQueries) -> None:
        sql, bucket = queries.sql, grid.bucket
        events = sql(_EVENTS, attempts=attempts, bucket=bucket)
        balances = queries.persist(sql(_BALANCES, events=events))
        queue_openings = queries.persist(sql(_QUEUE_OPENINGS, balances=balances))
        everything = sql(
            _ALL_EVENTS,
            events=events,
            openings=sql(_OPENINGS, balances=balances),
            queue_openings=queue_openings,
            bucket=bucket,
        ).repartition(grid.partitions, "queue", "bucket")
        states = sql(_STATES, events=sql(_SERVED, events=everything))
        cells = queries.persist(sql(_CELLS, states=states))
        clocks = queries.persist(sql(_CLOCKS, cells=cells, queue_openings=queue_openings, bucket=bucket))
        self.channels = sql(_CHANNELS, cells=cells, clocks=clocks, bucket=bucket)
        """A row a channel: concurrency, backlogged, starved, longest (lasted, begin, end; null: never starved)."""
        self.queues = sql(_QUEUES, clocks=clocks)
        """A row a queue: the time in which it was served, its greatest concurrency."""
