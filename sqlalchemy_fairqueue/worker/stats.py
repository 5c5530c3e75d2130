"""What a worker counts, for metrics."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class WorkerStats:
    """Counters since the start. Read them at any time; each is written by one thread of the worker.

    Attributes:
        taken: Deliveries dequeued.
        completed: Done.
        retried: To be tried again.
        released: Given back uncounted.
        buried: To the dead letters, for want of attempts or for another reason.
        lost: Deliveries whose lease was lost, or whose message was settled by somebody else.
        cancelled: Messages that were withdrawn while their handler worked.
        dequeues: Calls that asked for messages.
        empty: Those of them that gave none.
        flushes: Calls that settled deliveries.
        heartbeats: Calls that extended leases.
        woken: Times that a notification ended a sleep.
        failures: Calls to the database that failed.
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

    def as_dict(self) -> dict[str, int]:
        """All of them, by name."""
        return asdict(self)
