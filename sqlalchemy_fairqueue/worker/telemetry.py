"""Counters and distributions of a worker, for metrics, and its log.

The size of a distribution depends on neither messages nor channels: a count for each bucket, with one example that
names its channel. At INFO and above, the log has messages only when they fail.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from bisect import bisect_left
from dataclasses import asdict, dataclass
from itertools import accumulate
from time import time
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.texts import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values.messages import Delivery


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


@dataclass
class WorkerStats:
    """Counters since the worker was made, and the one figure that falls again. Any thread may read them at any time.

    One thread of the worker writes each of them, but for ``failures``, ``timed_out`` and ``hung``, which several write
    under a lock.

    Attributes:
        taken: Deliveries dequeued.
        completed: Deliveries that are done.
        retried: Deliveries to be tried again.
        released: Deliveries given back, their attempt not counted.
        buried: Deliveries that became dead letters, for want of attempts or for another reason.
        lost: Deliveries whose lease was lost, or whose message was settled by somebody else.
        cancelled: Messages that were withdrawn while their handler worked.
        dequeues: Calls that asked for messages.
        empty: Those of them that gave none.
        flushes: Calls that settled deliveries.
        heartbeats: Calls that extended leases.
        woken: Times that the listener reported notifications for its queues, or its own loss or return.
        failures: Calls to the database that failed.
        timed_out: Deliveries whose handler took longer than its timeout.
        hung: Handlers that still run, now, though their deliveries are settled without them, or their messages were
            cancelled half a minute ago. Each counts towards the
            worker's ``concurrency`` until it returns.

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
        # No fields: a copy has its own.
        self._lock = threading.Lock()
        self._attempts: dict[str, AttemptDistributions] = {}

    def __reduce__(self) -> tuple[type[WorkerStats], tuple[int, ...]]:
        return WorkerStats, tuple(asdict(self).values())

    def failed(self) -> None:
        """Count a failure. Called by several threads of the worker."""
        with self._lock:
            self.failures += 1

    def time_is_over(self) -> None:
        """Count a handler that took too long. Called by several threads of the worker."""
        with self._lock:
            self.timed_out += 1

    def hang(self, change: int) -> int:
        """Count a handler that hangs, or that has returned at last (-1); how many hang now."""
        with self._lock:
            self.hung += change
            return self.hung

    @classmethod
    def of(cls, queues: Iterable[Queue]) -> WorkerStats:
        """Those of a worker of these queues, of which each has distributions from the start."""
        made = cls()
        for queue in queues:
            made.attempts(queue.name)
        return made

    @property
    def queues(self) -> list[str]:
        """The queues that have distributions."""
        return list(self._attempts)

    def attempts(self, queue: str) -> AttemptDistributions:
        """The distributions of the attempts of a queue: waits, durations and numbers of attempts."""
        found = self._attempts.get(queue)
        return self._attempts.setdefault(queue, AttemptDistributions()) if found is None else found

    def as_dict(self) -> dict[str, int]:
        """All counters, by name: not ``hung``, which also falls."""
        return {name: count for name, count in asdict(self).items() if name != "hung"}


logger = logging.getLogger("sqlalchemy_fairqueue.worker")


class WorkerLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one worker: each text goes on from "worker" and its name, which its records have, too.

    Filters and handlers are the application's: one that raises must end no thread of a worker.
    """

    def __init__(self, worker: str) -> None:
        super().__init__(logger)
        self._worker = worker

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Name the worker, and keep the caller's extra fields."""
        return msg, dict(kwargs, extra={"worker": self._worker, **kwargs.get("extra", {})})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log, or say on stderr why it cannot be done, as logging itself does.

        Names and words of others are in the arguments: none of them makes a line that looks like one of ours.
        """
        try:
            shown = (clean(one) if isinstance(one, str) else one for one in (self._worker, *args))
            between = "" if str(msg).startswith(":") else " "
            super().log(level, f"worker %s{between}{msg}", *shown, **{"stacklevel": 2, **kwargs})
        except Exception:  # noqa: BLE001 - see above
            if logging.raiseExceptions and sys.stderr:
                traceback.print_exc(file=sys.stderr)

    def message(self, level: int, delivery: Delivery, what: str) -> None:
        """Log what became of a message that the worker holds."""
        self.log(
            level,
            ": message %d of queue %s, channel %s, kind %s %s",
            *(delivery.message_id, delivery.queue, delivery.channel, delivery.kind, what),
            extra={
                "queue": delivery.queue,
                "channel": delivery.channel,
                "kind": delivery.kind,
                "message_id": delivery.message_id,
                "attempt": delivery.attempt,
            },
        )
