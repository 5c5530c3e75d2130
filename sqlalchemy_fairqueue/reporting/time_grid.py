"""Time grid: buckets that distribute the work, windows that are shown, and windows of fair shares."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
LADDER = (
    *(steps * 10_000 for steps in (1, 2, 5, 10, 20, 50)),
    *(steps * _SECOND for steps in (1, 2, 5, 10, 15, 30)),
    *(steps * _MINUTE for steps in (1, 2, 5, 10, 15, 30)),
    *(steps * _HOUR for steps in (1, 2, 3, 6, 12)),
    *(steps * _DAY for steps in (1, 2, 7, 28)),
)
"""Widths that people read easily, in microseconds; each begins on a round time of UTC."""

_WINDOWS = 240
_FAIRNESS_WINDOWS = 100_000
_EVENTS_A_BUCKET = 100_000
_BUCKETS = 4096
_EVENTS_A_PARTITION = 500_000
MESSAGES_A_SHARE = 8
"""Messages that a backlogged channel gets in a window on average: with fewer, rounding would look unfair."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid of a history.

    Attributes:
        begin: When its first message became ready.
        end: When its last attempt ended.
        attempts: The number of attempts.
        bucket: Width of the buckets that distribute the work; no figure depends on it.
    """

    begin: int
    end: int
    attempts: int
    bucket: int

    @property
    def partitions(self) -> int:
        """The number of partitions of the shuffled events."""
        return max(1, min(3 * self.attempts // _EVENTS_A_PARTITION, 2000))


def grid_of(begin: int, end: int, attempts: int, bucket: int | None = None) -> Grid:
    """The grid from *begin* to *end*; *bucket* is chosen unless it is given."""
    span = max(end - begin, 1)
    buckets = max(1, min(3 * attempts // _EVENTS_A_BUCKET, _BUCKETS))
    return Grid(begin, end, attempts, bucket or -(-span // buckets))


def shown_window(span: int) -> int:
    """The width of the windows in which a queue is shown."""
    return rung(span / _WINDOWS)


def fairness_window(span: int, attempts: int, backlogged: int) -> int:
    """The width of the windows of fair shares: a backlogged channel gets several messages in one.

    Args:
        span: From the first event of the queue to the last.
        attempts: The number of the queue's attempts.
        backlogged: The sum of its channels' backlogged times.
    """
    return rung(max(MESSAGES_A_SHARE * backlogged / max(attempts, 1), span / _FAIRNESS_WINDOWS))


def rung(width: float) -> int:
    """The least width of the ladder that is at least this; multiples of the last beyond it."""
    if width > LADDER[-1]:
        return -int(-width // LADDER[-1]) * LADDER[-1]
    return next(upper for lower, upper in pairwise((0, *LADDER)) if lower < width <= upper or width <= lower)
