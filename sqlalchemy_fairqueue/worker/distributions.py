"""Distributions of a worker's attempts: how long messages waited, how long handlers took, how often they were tried.

Their size depends on neither messages nor channels: a count for each bucket, with one example that names its channel.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from time import time

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Upper bounds of the buckets of waits and durations."""
ATTEMPTS = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0)
"""Upper bounds of the buckets of attempts."""


@dataclass(frozen=True, slots=True)
class Example:
    """A value of a bucket, the last one.

    Attributes:
        value: The value.
        channel: The channel of its message.
        at: When it was added, in seconds since the epoch.
    """

    value: float
    channel: str
    at: float


@dataclass(frozen=True, slots=True)
class Bucket:
    """Values up to a bound.

    Attributes:
        bound: The greatest value that is counted.
        count: How many values are not greater.
        example: The last one that is in no smaller bucket. None: there was none.
    """

    bound: float
    count: int
    example: Example | None


class Distribution:
    """Values by buckets. Its owner has a lock.

    Args:
        bounds: The upper bounds of the buckets, the least first; another bucket has what is greater.
    """

    __slots__ = ("_bounds", "_counts", "_examples", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._examples: list[Example | None] = [None] * (len(bounds) + 1)
        self.sum: float = 0.0
        """The sum of all values."""

    def add(self, value: float, channel: str, at: float) -> None:
        """Add a value."""
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._examples[bucket] = Example(value, channel, at)
        self.sum += value

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets, the least bound first."""
        bounds = (*self._bounds, float("inf"))
        return [Bucket(*one) for one in zip(bounds, accumulate(self._counts), self._examples, strict=True)]


class AttemptDistributions:
    """The distributions of a queue's attempts that a worker made.

    Attributes:
        wait: Seconds from the enqueue to the begin of the first attempt.
        service: Seconds that handlers took.
        attempt: Which attempt of its message an attempt is.
    """

    def __init__(self) -> None:
        self.wait: Distribution = Distribution(SECONDS)
        self.service: Distribution = Distribution(SECONDS)
        self.attempt: Distribution = Distribution(ATTEMPTS)
        self._lock = threading.Lock()

    def add(self, channel: str, attempt: int, enqueued_at: float, took: float) -> None:
        """Add an attempt that has just ended. Any thread may call it.

        Args:
            channel: The channel of its message.
            attempt: Which one it is.
            enqueued_at: When its message was enqueued, in seconds since the epoch.
            took: The seconds that it took.
        """
        now = time()
        with self._lock:
            if attempt == 1:
                self.wait.add(max(0.0, now - took - enqueued_at), channel, now)
            self.service.add(took, channel, now)
            self.attempt.add(float(attempt), channel, now)
