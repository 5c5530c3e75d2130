"""Time grid: windows that are shown, and windows of fair shares."""

from __future__ import annotations

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
MESSAGES_A_SHARE = 8
"""Messages that a backlogged channel gets in a window on average: with fewer, rounding would look unfair."""


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
