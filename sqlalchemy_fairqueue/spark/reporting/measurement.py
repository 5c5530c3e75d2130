"""Measurement of a history: queries, and the figures made of their results."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.reporting.figures import (
    ChannelFigures,
    Figures,
    Outcomes,
    QueueFigures,
    Ratios,
    Spread,
    Starvation,
    WindowFigures,
)
from sqlalchemy_fairqueue.reporting.time_grid import fairness_window, grid_of, shown_window
from sqlalchemy_fairqueue.spark.reporting.attempts import attempts_of
from sqlalchemy_fairqueue.spark.reporting.fairness import Fairness
from sqlalchemy_fairqueue.spark.reporting.percentiles import PERCENTILES, percentiles
from sqlalchemy_fairqueue.spark.reporting.policies import policies_of
from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries
from sqlalchemy_fairqueue.spark.reporting.rates import bursts, rates
from sqlalchemy_fairqueue.spark.reporting.sweep import Sweep
from sqlalchemy_fairqueue.spark.reporting.windows import (
    QUEUE_SERVICE,
    QUEUE_WAIT,
    SERVICE,
    SLOWDOWN,
    WAIT,
    WINDOW_WAIT,
    values,
    windows,
)
from sqlalchemy_fairqueue.times import duration, instant, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.reporting.time_grid import Grid
    from sqlalchemy_fairqueue.spark.reporting.attempts import Attempts

_OUTCOMES = ("completed", "retried", "released", "buried", "expired", "cancelled")
_THOUSAND = 1000
Rows = dict[tuple[int, int], Any]


def measure(
    history: DataFrame,
    *,
    policies: DataFrame | None = None,
    window: timedelta | None = None,
    bucket: timedelta | None = None,
) -> Figures:
    """Take all figures of a history.

    Args:
        history: An archive, a live history, or anything with the columns queue, channel_id, channel, ready_at,
            started_at, finished_at and outcome. It is read once.
        policies: What ``table=channels`` reads. None: no channel has limits, all weigh the same.
        window: Width of the windows over time. None: one that makes at most 240 of them.
        bucket: Width of the buckets of time that the work is split into; no figure depends on it. None: by the number
            of attempts.

    Raises:
        HistoryEmpty: The history has no attempt.
        InvalidArgument: A column is missing, or the history is of several databases.
    """
    with SparkQueries(history.sparkSession) as queries:
        attempts = attempts_of(history, queries)
        grid = grid_of(attempts.begin, attempts.end, attempts.count, None if bucket is None else microseconds(bucket))
        return _Measurement(attempts, grid, policies, window, queries).figures()


class _Measurement:
    """Runs the queries, and makes the figures."""

    def __init__(
        self,
        attempts: Attempts,
        grid: Grid,
        policies: DataFrame | None,
        window: timedelta | None,
        queries: SparkQueries,
    ) -> None:
        frame = attempts.frame
        self._attempts = attempts
        self._window = window
        limits, self._policies = policies_of(policies, attempts, queries)
        sweep = Sweep(frame, grid, queries)
        self._swept = _by_channel(sweep.channels)
        self._served = {row.queue: row for row in sweep.queues.collect()}
        self._widths = {row[0]: row for row in self._window_widths()}
        widths = queries.frame([*self._widths.values()], "queue int, width long, shown long")
        fairness = Fairness(frame, widths, limits, queries)
        self._shares = _by_channel(fairness.channels)
        self._fair_queues = {row.queue: row for row in fairness.queues.collect()}
        self._fair_windows = {(row.queue, row.window): row.fairness for row in fairness.windows.collect()}
        self._rates = _by_channel(rates(frame, queries))
        self._bursts: Rows = {}
        if any(policy.rate_interval for policy in self._policies.values()):
            self._bursts = _by_channel(bursts(frame, limits, grid, queries))
        self._windows: defaultdict[int, dict[int, Any]] = defaultdict(dict)
        for row in windows(frame, widths, queries).collect():
            self._windows[row.queue][row.window] = row
        self._percentiles: defaultdict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
        groups = len(attempts.totals)
        for row in percentiles(values(frame, widths, queries), groups, queries).collect():
            self._percentiles[row.subject, row.queue, row.key][row.percentile] = row.cell

    def figures(self) -> Figures:
        """All figures."""
        channels = [self._channel(row) for row in self._attempts.totals]
        channels.sort(key=lambda one: (-one.denied_wait, -one.mean_wait, one.queue, one.channel))
        numbers = range(1, len(self._attempts.queues) + 1)
        return Figures(tuple(self._queue(number) for number in numbers), tuple(channels))

    def _window_widths(self) -> Iterable[tuple[int, int, int]]:
        """Each queue with the widths of its fairness windows and of its shown windows."""
        backlogged: defaultdict[int, int] = defaultdict(int)
        for (queue, _), row in self._swept.items():
            backlogged[queue] += row.backlogged
        for queue in range(1, len(self._attempts.queues) + 1):
            rows = self._of(queue)
            span = max(row.last for row in rows) - min(row.first for row in rows)
            width = fairness_window(span, sum(row.attempts for row in rows), backlogged[queue])
            yield queue, width, shown_window(span) if self._window is None else microseconds(self._window)

    def _of(self, queue: int) -> list[Any]:
        return [row for row in self._attempts.totals if row.queue == queue]

    def _channel(self, row: Any) -> ChannelFigures:
        key = row.queue, row.channel
        swept, share = self._swept[key], self._shares[key]
        longest = swept.longest if swept.longest and swept.longest.lasted else None
        burst = self._bursts.get(key)
        return ChannelFigures(
            queue=self._attempts.queues[row.queue - 1],
            channel=row.name,
            attempts=row.attempts,
            outcomes=_outcomes([row]),
            wait=self._spread(WAIT, row.queue, row.channel, row.longest_wait),
            service=self._spread(SERVICE, row.queue, row.channel, row.longest_service),
            slowdown=self._ratios(row),
            mean_wait=duration(round(row.waits / row.attempts)),
            denied_wait=duration(round(share.denied / row.attempts)) if share.denied else duration(0),
            fair_share=share.served / share.share if share.share else None,
            backlogged=duration(swept.backlogged),
            starved=duration(swept.starved),
            longest_starvation=longest
            and Starvation(duration(longest.lasted), instant(longest.begin), instant(longest.end)),
            greatest_concurrency=swept.concurrency,
            greatest_rate=self._rates[key].rate,
            greatest_burst=burst and burst.burst,
            policy=self._policies.get(key),
        )

    def _queue(self, queue: int) -> QueueFigures:
        rows, served, fair = self._of(queue), self._served[queue], self._fair_queues[queue]
        return QueueFigures(
            queue=self._attempts.queues[queue - 1],
            from_=instant(min(row.first for row in rows)),
            to=instant(max(row.last for row in rows)),
            channels=len(rows),
            attempts=sum(row.attempts for row in rows),
            outcomes=_outcomes(rows),
            wait=self._spread(QUEUE_WAIT, queue, 0, max(row.longest_wait for row in rows)),
            service=self._spread(QUEUE_SERVICE, queue, 0, max(row.longest_service for row in rows)),
            busy=duration(served.served),
            greatest_concurrency=served.concurrency,
            fairness=fair.fairness,
            least_fairness=fair.least_fairness,
            fairness_window=duration(self._widths[queue][1]),
            contended=fair.contended or 0.0,
            window=duration(self._widths[queue][2]),
            windows=tuple(self._over_time(queue)),
        )

    def _over_time(self, queue: int) -> Iterable[WindowFigures]:
        found = self._windows[queue]
        numbers = range(min(found), max(found) + 1)
        rows = [found.get(number) for number in numbers]
        waiting = accumulate(row.became_ready - row.started if row else 0 for row in rows)
        for number, row, left in zip(numbers, rows, waiting, strict=True):
            started = row.started if row else 0
            yield WindowFigures(
                begin=instant(number * self._widths[queue][2]),
                started=started,
                completed=row.completed if row else 0,
                waiting=left,
                wait=self._spread(WINDOW_WAIT, queue, number, row.longest_wait) if row and started else None,
                fairness=self._fair_windows.get((queue, number)),
            )

    def _spread(self, subject: int, queue: int, key: int, greatest: int) -> Spread:
        found = self._percentiles[subject, queue, key]
        p50, p95, p99 = (duration(found[one]) for one in PERCENTILES)
        return Spread(p50, p95, p99, duration(greatest))

    def _ratios(self, row: Any) -> Ratios:
        found = self._percentiles[SLOWDOWN, row.queue, row.channel]
        p50, p95, p99 = (found[one] / _THOUSAND for one in PERCENTILES)
        return Ratios(p50, p95, p99, row.greatest_slowdown / _THOUSAND)


def _by_channel(frame: DataFrame) -> Rows:
    return {(row.queue, row.channel): row for row in frame.collect()}


def _outcomes(rows: Iterable[Mapping[str, Any]]) -> Outcomes:
    rows = list(rows)
    return Outcomes(**{name: sum(row[name] for row in rows) for name in _OUTCOMES})
