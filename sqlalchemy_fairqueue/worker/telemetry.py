"""Counters of a worker, for metrics, and its log. At INFO and above, it logs messages only when they fail."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.worker.distributions import AttemptDistributions

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values.messages import Delivery


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
        hung: Handlers that still run, now, though their deliveries are settled without them. Each counts towards the
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


class _Log(logging.LoggerAdapter[logging.Logger]):
    """Filters and handlers are the application's: one that raises must end no thread of a worker."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave the caller's extra fields as they are."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log, or say on stderr why it cannot be done, as logging itself does.

        Names and words of others are in the arguments: none of them makes a line that looks like one of ours.
        """
        try:
            shown = (clean(one) if isinstance(one, str) else one for one in args)
            super().log(level, msg, *shown, **{"stacklevel": 2, **kwargs})
        except Exception:  # noqa: BLE001 - see above
            if logging.raiseExceptions and sys.stderr:
                traceback.print_exc(file=sys.stderr)


log = _Log(logging.getLogger("sqlalchemy_fairqueue.worker"))


def log_message(level: int, name: str, delivery: Delivery, what: str) -> None:
    """Log what became of a message that the worker of that name holds."""
    log.log(
        level,
        "worker %s: message %d of queue %s, channel %s, kind %s %s",
        name,
        delivery.message_id,
        delivery.queue,
        delivery.channel,
        delivery.kind,
        what,
        extra={
            "worker": name,
            "queue": delivery.queue,
            "channel": delivery.channel,
            "kind": delivery.kind,
            "message_id": delivery.message_id,
            "attempt": delivery.attempt,
        },
    )
