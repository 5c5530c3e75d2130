"""Dequeues without an answer: the worker gives back what they took.

When a connection breaks after the database committed a dequeue and before it answered, messages are held that no
handler will see. They come back when their lease ends; but a lease that handlers at work are held under too is extended
for as long as these take. So after such a failure the worker asks what is held under the lease, and gives back what it
does not know. It asks again, ever more seldom, while the lease is kept, since a network may deliver the call late.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.worker.backoff import Backoff
from sqlalchemy_fairqueue.worker.logs import log

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.leases import LeaseRegistry
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue


class UnansweredDequeues:
    """The leases of one queue under which a dequeue was not answered. The fetcher calls it.

    Args:
        queue: The queue.
        leases: What the worker holds.
        options: The worker's.

    Attributes:
        backoff: Failures of its calls.
    """

    def __init__(self, queue: ServedQueue, leases: LeaseRegistry, options: WorkerOptions) -> None:
        self.backoff = Backoff(
            f"look up unanswered dequeues of {queue.queue.name!r}", options.name, options.clock, options.timings
        )
        self._queue = queue
        self._leases = leases
        self._clock = options.clock
        self._after = options.timings.unanswered_after
        # By lease: when to ask, and how many seconds after that to ask again.
        self._due: dict[int, tuple[float, float]] = {}

    @property
    def due_at(self) -> float:
        """The time to ask next, by the worker's clock."""
        return min((at for at, _ in self._due.values()), default=math.inf)

    def add(self, lease_id: int | None) -> None:
        """A dequeue that may have used this lease failed."""
        if lease_id is not None:
            self._due[lease_id] = (self._clock() + self._after, self._after)

    def failed(self, error: BaseException) -> None:
        """A lookup failed, perhaps before it reached the database: none is made before the backoff is over."""
        at = self._clock() + self.backoff.failed(error)
        self._due = {lease_id: (max(due_at, at), wait) for lease_id, (due_at, wait) in self._due.items()}

    def give_back(self, connection: Connection) -> None:
        """Give back what the worker does not know of under the leases that are due."""
        now = self._clock()
        for lease_id, (at, wait) in list(self._due.items()):
            if at > now:
                continue
            # Before the call: one that fails is made again as late.
            self._due[lease_id] = (now + 2 * wait, 2 * wait)
            if not self._give_back(connection, lease_id):
                del self._due[lease_id]

    def _give_back(self, connection: Connection, lease_id: int) -> bool:
        """Returns whether the lease is kept."""
        queue = self._queue
        kept = [lease for lease in self._leases.held(queue) if lease.lease_id == lease_id]
        if not kept:
            # Nobody extends it: it ends by itself.
            return False
        tokens = database.held(connection, queue.target, lease_id)
        connection.commit()
        # After the query: what is settled meanwhile is refused by its token.
        known = {held.delivery.message_id for lease in kept for held in lease.held.copy()}
        unknown = [token for token in tokens if token.message_id not in known]
        if not unknown:
            return True
        log.warning(
            "worker gives back %d messages of queue %s that a dequeue took whose answer was lost",
            len(unknown),
            queue.queue.name,
            extra={"queue": queue.queue.name, "message_ids": tuple(token.message_id for token in unknown)},
        )
        database.release(connection, queue.target, unknown, delays=[None] * len(unknown), notify=False)
        connection.commit()
        return True
