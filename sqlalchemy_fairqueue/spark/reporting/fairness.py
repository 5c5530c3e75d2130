"""Fairness of service: the messages that each channel got, compared with its max-min fair share, window by window.

The fair share is found by water-filling: every channel is filled up to one level, in proportion to its weight and no
further than it could use, so that all served messages are distributed. In the order of use / weight, the level is the
greatest of (served - use of the channels before) / (weights of this channel and those after it).

Max-min fairness: D. Bertsekas, R. Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2. The index: R. Jain,
D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation in shared computer
systems", 1984.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries

# Windows without an event in which a channel waits have rows too: it was not served then.
_CHANNEL_WINDOWS = """
with counts as (
  select /*+ broadcast(w) */ a.queue, a.channel, w.width, e.at div w.width as window,
    sum(e.became_ready) as became_ready, sum(e.served) as served
  from {attempts} a
  join {widths} w on w.queue = a.queue
  lateral view stack(2, a.ready, 1, 0, a.started, 0, 1) e as at, became_ready, served
  group by a.queue, a.channel, w.width, e.at div w.width
),
balances as (
  select *, coalesce(sum(became_ready - served) over before, 0) as waiting,
    coalesce(sum(became_ready - served) over before, 0) + became_ready - served as waiting_after,
    lead(window) over (partition by queue, channel order by window) as next_window
  from counts
  window before as (partition by queue, channel order by window rows between unbounded preceding and 1 preceding)
)
select queue, channel, width, window, waiting, served
from balances
union all
select queue, channel, width, explode(sequence(window + 1, next_window - 1)), waiting_after, 0
from balances
where waiting_after > 0 and next_window > window + 1
"""
_USES = """
select /*+ broadcast(p) */ w.queue, w.window, w.channel, w.width, w.waiting, w.served, coalesce(p.weight, 1) as weight,
  cast(greatest(w.served, least(
    w.waiting,
    case when p.rate_interval > 0 then w.width div p.rate_interval + p.rate_burst end,
    case when p.mean_service > 0 then p.max_concurrency * w.width / p.mean_service end
  )) as double) as uses
from {windows} w
left join {policies} p on p.queue = w.queue and p.channel = w.channel
where w.served > 0 or w.waiting > 0
"""
_SHARES = """
with totals as (
  select *, sum(served) over (partition by queue, window) as all_served
  from {uses}
),
filled as (
  select *,
    coalesce(sum(uses) over before, 0) as used_before, sum(weight) over from_here as weight_left
  from totals
  where all_served > 0
  window
    before as (
      partition by queue, window order by uses / weight, channel rows between unbounded preceding and 1 preceding
    ),
    from_here as (
      partition by queue, window order by uses / weight, channel rows between current row and unbounded following
    )
),
levels as (
  select *, max((all_served - used_before) / weight_left) over (partition by queue, window) as level
  from filled
)
select queue, window, channel, width, waiting, served, least(uses, level * weight) as share
from levels
"""
# A channel that got all it could use, and no more than its share, does not compete. The tolerance is for rounding.
_INDEXES = """
select queue, window, width, sum(served) as served, count_if(competed) as channels,
  case when count_if(competed) > 1 then
    pow(sum(case when competed then served / share end), 2)
      / (count_if(competed) * sum(case when competed then pow(served / share, 2) end))
  end as fairness
from (
  select *, waiting > served or served > share * (1 + 1e-9) as competed
  from {shares}
)
group by queue, window, width
"""
_CHANNELS = """
select queue, channel, sum(case when waiting > 0 then share end) as share,
  sum(case when waiting > 0 then served end) as served,
  sum(greatest(share - served, 0) * width) as denied
from {shares}
group by queue, channel
"""
_QUEUES = """
select queue, avg(fairness) as fairness, min(fairness) as least_fairness,
  count_if(channels > 1) / count_if(served > 0) as contended
from {indexes}
group by queue
"""
_WINDOWS = """
select /*+ broadcast(w) */ i.queue, i.window * i.width div w.shown as window, avg(i.fairness) as fairness
from {indexes} i
join {widths} w on w.queue = i.queue
group by i.queue, i.window * i.width div w.shown
"""


class Fairness:
    """Served messages of channels, and their fair shares.

    Args:
        attempts: A row an attempt.
        widths: A row a queue: width, that of its windows, and shown, that of the windows in which it is shown.
        policies: A row a channel whose policy is known, with its mean service.
        queries: Runs the queries, and persists frames that are used twice.
    """

    def __init__(self, attempts: DataFrame, widths: DataFrame, policies: DataFrame, queries: SparkQueries) -> None:
        sql = queries.sql
        windows = sql(_CHANNEL_WINDOWS, attempts=attempts, widths=widths)
        uses = sql(_USES, windows=windows, policies=policies)
        shares = queries.persist(sql(_SHARES, uses=uses))
        indexes = queries.persist(sql(_INDEXES, shares=shares))
        self.channels = sql(_CHANNELS, shares=shares)
        """A row a channel: share and served while it had a backlog, denied (messages by microseconds)."""
        self.queues = sql(_QUEUES, indexes=indexes)
        """A row a queue: fairness (mean and least index), contended (part of its windows)."""
        self.windows = sql(_WINDOWS, indexes=indexes, widths=widths)
        """A row a queue and shown window: its mean index."""
