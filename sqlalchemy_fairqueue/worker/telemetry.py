"""Counters, distributions and the log of a worker.

At level INFO and above, the log has no lines about messages that are handled without trouble.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from bisect import bisect_left
from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import accumulate
from time import time
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.texts import clean

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from sqlalchemy_fairqueue.values.messages import Delivery


SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Upper bounds of the buckets of waits and durations, in seconds."""
ATTEMPTS = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0)
"""Upper bounds of the buckets of attempts."""


@dataclass(frozen=True, slots=True)
class Example:
    """The latest value in a bucket, with the channel of its message; *at* is in seconds since the epoch."""

    value: float
    channel: str
    at: float


@dataclass(frozen=True, slots=True)
class Bucket:
    """The count of all values up to *bound*. *example* is the latest value above the previous bound, or None."""

    bound: float
    count: int
    example: Example | None


class Distribution:
    """Counts of values by buckets, with ascending upper *bounds* and one bucket above. Callers must hold a lock."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._examples: list[Example | None] = [None] * (len(bounds) + 1)
        self.sum: float = 0.0

    def add(self, value: float, channel: str, at: float) -> None:
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._examples[bucket] = Example(value, channel, at)
        self.sum += value

    @property
    def buckets(self) -> list[Bucket]:
        bounds = (*self._bounds, float("inf"))
        return [Bucket(*one) for one in zip(bounds, accumulate(self._counts), self._examples, strict=True)]


class AttemptDistributions:
    """The distributions of a queue's attempts by one worker.

    Attributes:
        wait: Seconds from the enqueue to the beginning of the first attempt.
        service: Seconds that handlers took.
        attempt: The numbers of attempts: 1 for the first attempt at a message, 2 for the second.
    """

    def __init__(self) -> None:
        self.wait: Distribution = Distribution(SECONDS)
        self.service: Distribution = Distribution(SECONDS)
        self.attempt: Distribution = Distribution(ATTEMPTS)
        self._lock = threading.Lock()

    def add(self, delivery: Delivery, took: float) -> None:
        now, channel = time(), delivery.channel
        with self._lock:
            if delivery.attempt == 1:
                self.wait.add(max(0.0, now - took - delivery.enqueued_at.timestamp()), channel, now)
            self.service.add(took, channel, now)
            self.attempt.add(float(delivery.attempt), channel, now)


@dataclass
class WorkerStats:
    """Counters since the worker was created. Only ``hung`` can fall. Any thread may read them at any time.

    Attributes:
        taken: Deliveries dequeued.
        released: Deliveries given back without counting the attempt, including those of cancelled messages.
        buried: Deliveries that became dead letters.
        lost: Deliveries whose lease was lost, or whose message somebody else settled.
        cancelled: Messages that were withdrawn while this worker held them.
        empty: Dequeue calls that returned nothing.
        flushes: Calls to settle deliveries, also those that failed.
        heartbeats: Calls to extend leases, also those that failed.
        woken: How often notifications, or a failure or return of the listening connection, woke the worker.
        failures: Failed dequeues, settlements, heartbeats and other periodic calls, mostly while the database is away.
        timed_out: Deliveries whose handler exceeded its timeout.
        hung: Handlers that run now though their deliveries are settled without them, or their messages were cancelled
            half a minute ago. Each counts towards the worker's ``concurrency`` until it returns.

    Example:
        >>> @queue.handler("call")
        ... def call(delivery: Delivery) -> None: ...
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="call")
        >>> worker = Worker(engine, queue, concurrency=1)
        >>> worker.run(drain=True)
        >>> worker.stats.completed, worker.stats.as_dict()["failures"]
        (1, 0)
        >>> [worker.stats.attempts(name).service.sum < 60 for name in worker.stats.queues]  # seconds in handlers
        [True]
    """

    taken: int = 0
    completed: int = 0
    retried: int = 0
    released: int = 0
    buried: int = 0
    lost: int = 0
    cancelled: int = 0
    dequeues: int = 0
    empty: int = 0
    flushes: int = 0
    heartbeats: int = 0
    woken: int = 0
    failures: int = 0
    timed_out: int = 0
    hung: int = 0

    def __post_init__(self) -> None:
        # These are not dataclass fields, since each copy of the stats has its own.
        self._lock = threading.Lock()
        self._attempts: defaultdict[str, AttemptDistributions] = defaultdict(AttemptDistributions)

    def __reduce__(self) -> tuple[type[WorkerStats], tuple[int, ...]]:
        return WorkerStats, tuple(asdict(self).values())

    def count(self, counter: str, change: int = 1) -> int:
        """Change a counter that several threads write, and return it."""
        with self._lock:
            changed: int = getattr(self, counter) + change
            setattr(self, counter, changed)
            return changed

    @property
    def queues(self) -> list[str]:
        return list(self._attempts)

    def attempts(self, queue: str) -> AttemptDistributions:
        """Return a queue's distributions of waits, times in handlers, and numbers of attempts."""
        return self._attempts[queue]

    def as_dict(self) -> dict[str, int]:
        """Return all counters by name, except ``hung``, which can fall."""
        return {name: count for name, count in asdict(self).items() if name != "hung"}


class WorkerLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one worker. Each text begins with "worker <name>"; each record has the name as ``worker``."""

    def __init__(self, worker: str) -> None:
        super().__init__(logging.getLogger("sqlalchemy_fairqueue.worker"))
        self._worker = worker

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, dict(kwargs, extra={"worker": self._worker, **kwargs.get("extra", {})})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a text. A filter or log handler that fails is reported on stderr, and ends no thread of the worker.

        Pass foreign names and texts as arguments, which are escaped so that none looks like a line of ours.
        """
        try:
            shown = (clean(one) if isinstance(one, str) else one for one in (self._worker, *args))
            between = "" if str(msg).startswith(":") else " "
            super().log(level, f"worker %s{between}{msg}", *shown, **{"stacklevel": 2, **kwargs})
        except Exception:  # noqa: BLE001 - see above
            if logging.raiseExceptions and sys.stderr:
                traceback.print_exc(file=sys.stderr)

    def message(self, level: int, delivery: Delivery, what: str) -> None:
        self.log(
            level,
            ": message %d of queue %s, channel %s, kind %s %s",
            *(delivery.message_id, delivery.queue, delivery.channel, delivery.kind, what),
            extra={name: getattr(delivery, name) for name in ("queue", "channel", "kind", "message_id", "attempt")},
        )
