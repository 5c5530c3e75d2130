"""A queue over time, window by window."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.spark.report.asking import Asking
    from sqlalchemy_fairqueue.spark.report.grid import Grid

_WINDOWS = """
select a.queue, e.at div :window as window, sum(e.became_ready) as became_ready, sum(e.started) as started,
  sum(e.completed) as completed, max(e.wait) as longest_wait
from {attempts} a
lateral view stack(3,
  a.ready, 1, 0, 0, null,
  a.started, 0, 1, 0, a.wait,
  a.finished, 0, 0, cast(a.outcome = 'completed' as int), null
) e as at, became_ready, started, completed, wait
group by a.queue, e.at div :window
"""
# What the percentiles are taken of, and by which numbers they are told apart.
WAIT, SERVICE, SLOWDOWN, QUEUE_WAIT, QUEUE_SERVICE, WINDOW_WAIT = range(6)
_VALUES = """
select subject, queue, key, value
from {attempts}
lateral view stack(6,
  0, channel, wait,
  1, channel, service,
  2, channel, slowdown,
  3, 0L, wait,
  4, 0L, service,
  5, started div :window, wait
) e as subject, key, value
"""


def windows(attempts: DataFrame, grid: Grid, asking: Asking) -> DataFrame:
    """A row a queue and window in which something happened."""
    return asking.sql(_WINDOWS, attempts=attempts, window=grid.window)


def values(attempts: DataFrame, grid: Grid, asking: Asking) -> DataFrame:
    """The values that percentiles are taken of, with their groups."""
    return asking.sql(_VALUES, attempts=attempts, window=grid.window)
