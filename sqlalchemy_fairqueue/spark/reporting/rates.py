"""Greatest rates of channels, a second and in relation to their policies.

The rate of a policy is the generic cell rate algorithm (ITU-T I.371): it keeps a theoretical time of the next message,
the later of that time and now, plus the interval. A message is allowed while this time is at most the burst's intervals
ahead. With the n-th message at t(n), it is the greatest of t(k) - (k - 1) interval for k up to n, plus n intervals: a
running maximum, which is combined over buckets like a running sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.reporting.time_grid import Grid
    from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries

_RATES = """
select queue, channel, max(number) as rate
from (
  select queue, channel, count(*) as number
  from {attempts}
  group by queue, channel, started div 1000000
)
group by queue, channel
"""
# ahead: by how much the theoretical time is ahead, were the bucket the first; to_come: were the reference zero.
_CELLS = """
with numbered as (
  select /*+ broadcast(p) */ a.queue, a.channel, a.started div :bucket as bucket, a.started,
    p.rate_interval as interval,
    row_number() over (partition by a.queue, a.channel, a.started div :bucket order by a.started) as number
  from {attempts} a
  join {policies} p on p.queue = a.queue and p.channel = a.channel
  where p.rate_interval > 0
),
referred as (
  select *, max(started - (number - 1) * interval) over until_now as reference
  from numbered
  window until_now as (
    partition by queue, channel, bucket order by started, number rows between unbounded preceding and current row
  )
)
select queue, channel, bucket, interval, count(*) as number, max(reference) as reference,
  max(reference + number * interval - started) as ahead, max(number * interval - started) as to_come
from referred
group by queue, channel, bucket, interval
"""
_BURSTS = """
with carried as (
  select *, coalesce(sum(number) over before, 0) as number_before
  from {cells}
  window before as (partition by queue, channel order by bucket rows between unbounded preceding and 1 preceding)
),
referred as (
  select *, max(reference - number_before * interval) over before as reference_before
  from carried
  window before as (partition by queue, channel order by bucket rows between unbounded preceding and 1 preceding)
)
select queue, channel, max((
  greatest(ahead, coalesce(reference_before + number_before * interval + to_come, ahead)) + interval - 1
) div interval) as burst
from referred
group by queue, channel
"""


def rates(attempts: DataFrame, queries: SparkQueries) -> DataFrame:
    """A row a channel: most attempts begun in one second of UTC."""
    return queries.sql(_RATES, attempts=attempts)


def bursts(attempts: DataFrame, policies: DataFrame, grid: Grid, queries: SparkQueries) -> DataFrame:
    """A row a channel whose policy has a rate: the least burst that would have allowed what it got."""
    cells = queries.sql(_CELLS, attempts=attempts, policies=policies, bucket=grid.bucket)
    return queries.sql(_BURSTS, cells=cells)
