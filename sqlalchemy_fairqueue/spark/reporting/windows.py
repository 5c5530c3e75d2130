"""Windows of time: counts of a queue, and the values of percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries

_WINDOWS = """
select /*+ broadcast(w) */ a.queue, e.at div w.shown as window, sum(e.became_ready) as became_ready,
  sum(e.started) as started, sum(e.completed) as completed, max(e.wait) as longest_wait
from {attempts} a
join {widths} w on w.queue = a.queue
lateral view stack(3,
  a.ready, 1, 0, 0, null,
  a.started, 0, 1, 0, a.wait,
  a.finished, 0, 0, cast(a.outcome = 'completed' as int), null
) e as at, became_ready, started, completed, wait
group by a.queue, e.at div w.shown
"""
# Numbers of the subjects that percentiles are taken of.
WAIT, SERVICE, SLOWDOWN, QUEUE_WAIT, QUEUE_SERVICE, WINDOW_WAIT = range(6)
_VALUES = """
select /*+ broadcast(w) */ e.subject, a.queue, e.key, e.value
from {attempts} a
join {widths} w on w.queue = a.queue
lateral view stack(6,
  0, a.channel, a.wait,
  1, a.channel, a.service,
  2, a.channel, a.slowdown,
  3, 0L, a.wait,
  4, 0L, a.service,
  5, a.started div w.shown, a.wait
) e as subject, key, value
"""


def windows(attempts: DataFrame, widths: DataFrame, queries: SparkQueries) -> DataFrame:
    """A row a queue and window with an event."""
    return queries.sql(_WINDOWS, attempts=attempts, widths=widths)


def values(attempts: DataFrame, widths: DataFrame, queries: SparkQueries) -> DataFrame:
    """The values that percentiles are taken of, with their groups."""
    return queries.sql(_VALUES, attempts=attempts, widths=widths)
