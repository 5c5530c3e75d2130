"""A queue as one worker sees it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.consumer import Consumer
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.worker.backoff import Backoff
from sqlalchemy_fairqueue.worker.leases import LeaseRegistry, TrackedLease, WorkerLease
from sqlalchemy_fairqueue.worker.logs import log
from sqlalchemy_fairqueue.worker.polls import PollSchedule
from sqlalchemy_fairqueue.worker.unanswered_dequeues import UnansweredDequeues

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.handling import Handler
    from sqlalchemy_fairqueue.values import Delivery, Lease, RetryPolicy


class ServedQueue:
    """One queue of a worker: its consumer, its leases, when to look at it.

    Attributes:
        queue: The queue.
        target: Where it is.
        claims: The leases that its deliveries are held under.
        looks: When to look at it.
        asking: Held while a dequeue is under way.
        heard_at: When its signals were last heard, on time.monotonic.
        marked_lease: The lease that says that we sleep, if one was ever marked.
        outage: Its failures in a row.
        recovery: What dequeues took whose answer was lost.
    """

    def __init__(self, queue: Queue, name: str, ask: timedelta, interval: float) -> None:
        self.queue = queue
        self.target = queue._target  # noqa: SLF001 - with its bind arguments
        self.claims = LeaseRegistry()
        self.looks = PollSchedule(interval)
        self.asking = threading.Lock()
        self.heard_at = 0.0
        self.marked_lease: int | None = None
        self.recovery = UnansweredDequeues(self, name)
        self.outage = Backoff(log, f"dequeue from {queue.name!r}", name)
        self.consumer = Consumer(self.target, queue.codec, name, self._keep)
        self._seconds = ask.total_seconds()

    def _keep(self, lease: Lease, sent_at: float) -> Lease:
        claim = self.claims.proven(lease.id, sent_at + self._seconds)
        return WorkerLease(lease.id, lease.consumer, lease.expires_at, claim)

    def claim_of(self, delivery: Delivery) -> TrackedLease:
        """The claim that a delivery of ours is held under."""
        lease = delivery.lease
        assert isinstance(lease, WorkerLease)  # noqa: S101 - our consumer made it
        assert lease.claim is not None  # noqa: S101
        return lease.claim

    def handler(self, kind: str) -> Handler:
        """The handler of a kind.

        Raises:
            WorkerError: There is none.
        """
        handler = self.queue.handlers.get(kind)
        if handler is None:
            known = ", ".join(sorted(self.queue.handlers)) or "none"
            raise WorkerError(
                f"queue {self.queue.name!r} has no handler for kind {kind!r} in this worker (it knows: {known}); "
                f"declare one with @queue.handler({kind!r}), or leave the kind to workers that know it"
            )
        return handler

    def policy(self, handler: Handler | None, default: RetryPolicy) -> RetryPolicy:
        """How failures of a kind are tried again."""
        return default if handler is None or handler.retry is None else handler.retry
