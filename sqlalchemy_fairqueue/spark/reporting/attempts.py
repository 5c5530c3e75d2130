"""Attempts of a history: channel, times in microseconds and outcome, checked, and kept on disk.

The history is read once. A live one may grow meanwhile, and every figure must be of the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, empty_history, mixed_history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries

COLUMNS = ("queue", "channel_id", "channel", "ready_at", "started_at", "finished_at", "outcome")

# A clock that was set back must not make time run backwards: a later event counts as no earlier one.
_ROWS = """
select queue, channel_id as channel, channel as name, unix_micros(ready_at) as ready,
  greatest(unix_micros(ready_at), unix_micros(started_at)) as started,
  greatest(unix_micros(ready_at), unix_micros(started_at), unix_micros(finished_at)) as finished, outcome
from {history}
"""
_QUEUES = "select distinct queue from {rows} order by queue"
# The slowdown is in thousandths: (wait + service) / service; a service counts as a hundredth of a second at least.
_ATTEMPTS = """
select cast(array_position(:queues, queue) as int) as queue, channel, name, ready, started, finished, outcome,
  started - ready as wait, finished - started as service,
  greatest((finished - ready) * 1000 div greatest(finished - started, 10000), 1000) as slowdown
from {rows}
"""
_TOTALS = """
select queue, channel, min(name) as name, max(name) as other_name, count(*) as attempts, min(ready) as first,
  max(finished) as last, sum(wait) as waits, sum(service) as services, max(wait) as longest_wait,
  max(service) as longest_service, max(slowdown) as greatest_slowdown,
  count_if(outcome = 'completed') as completed, count_if(outcome = 'retried') as retried,
  count_if(outcome = 'released') as released, count_if(outcome = 'buried') as buried,
  count_if(outcome = 'expired') as expired, count_if(outcome = 'cancelled') as cancelled
from {attempts}
group by queue, channel
"""


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of a history.

    Attributes:
        frame: A row an attempt: queue (its index in *queues*, from 1), channel (its id), ready, started, finished,
            wait, service (microseconds), slowdown (thousandths), outcome.
        queues: Names of the queues.
        totals: A row a channel.
    """

    frame: DataFrame
    queues: list[str]
    totals: list[Any]

    @property
    def begin(self) -> int:
        """When the first message became ready."""
        return int(min(row.first for row in self.totals))

    @property
    def end(self) -> int:
        """When the last attempt ended."""
        return int(max(row.last for row in self.totals))

    @property
    def count(self) -> int:
        """The number of attempts."""
        return int(sum(row.attempts for row in self.totals))


def attempts_of(history: DataFrame, queries: SparkQueries) -> Attempts:
    """Read a history.

    Raises:
        HistoryEmpty: It has no attempt.
        InvalidArgument: It lacks a column, or a channel id stands for two channels.
    """
    missing = [name for name in COLUMNS if name not in history.columns]
    if missing:
        raise InvalidArgument(
            f"the history lacks {', '.join(missing)}: it has {', '.join(history.columns)}; "
            'read it by format("fairqueue") or from an archive'
        )
    rows = queries.persist(queries.sql(_ROWS, history=history))
    queues = [row.queue for row in queries.sql(_QUEUES, rows=rows).collect()]
    if not queues:
        raise HistoryEmpty(empty_history())
    frame = queries.sql(_ATTEMPTS, rows=rows, queues=queues)
    totals = queries.sql(_TOTALS, attempts=frame).collect()
    _check_ids(totals, queues)
    return Attempts(frame, queues, totals)


def _check_ids(totals: Sequence[Any], queues: Sequence[str]) -> None:
    known: dict[int, tuple[int, str]] = {}
    for row in totals:
        names = {
            known.setdefault(row.channel, (row.queue, row.name)),
            (row.queue, row.name),
            (row.queue, row.other_name),
        }
        if len(names) > 1:
            one, other, *_ = sorted(names)
            raise InvalidArgument(
                mixed_history(row.channel, (queues[one[0] - 1], one[1]), (queues[other[0] - 1], other[1]))
            )
