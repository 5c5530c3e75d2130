"""Keeps the leases of a worker alive: one thread with a connection of its own, whatever handlers and loops do.

It extends every lease that something is held under, a few times before it would end. What it cannot prove it says:
claims end by the worker's own clock (see claims), and whoever works under a lost one is told.
"""

from __future__ import annotations

import random
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import statements
from sqlalchemy_fairqueue.errors import translated
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.worker.backoff import Backoff
from sqlalchemy_fairqueue.worker.logs import log
from sqlalchemy_fairqueue.worker.wake_event import WakeEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.housekeeping import Housekeeping
    from sqlalchemy_fairqueue.worker.leases import TrackedLease
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.stats import WorkerStats

# A lease is extended after a quarter of its time, so that two beats may fail before a dequeue needs a new one.
_BEATS = 4
# Seconds without a dequeue after which the heartbeat hears the signals of a queue.
_UNHEARD = 2.0
# Seconds after which a call of another part that has no answer is ended, if the lease is not longer.
_STUCK = 30.0


class Heartbeat:
    """The watch over a worker's leases.

    Args:
        line: Its connection.
        watched: The connections of the other parts: a call on them that is never answered must not last for ever.
        sources: The queues.
        lease: How long a lease is to live.
        tell: Called with deliveries whose handlers should know: their lease is lost, or their message was cancelled.
        housekeeping: What else is done now and then.
        stats: Counted here: heartbeats.
        name: The worker's name, for the log.
    """

    def __init__(
        self,
        *,
        line: DedicatedConnection,
        watched: Sequence[DedicatedConnection],
        sources: Sequence[ServedQueue],
        lease: timedelta,
        tell: Callable[[list[Context]], None],
        housekeeping: Housekeeping | None,
        stats: WorkerStats,
        name: str,
    ) -> None:
        self._line = line
        self._watched = watched
        self._sources = sources
        self._lease = lease
        self._seconds = lease.total_seconds()
        self._tell = tell
        self._housekeeping = housekeeping
        self._stats = stats
        self._name = name
        self._outage = Backoff(log, "extend its leases", name, cap=max(self._seconds / 10, 0.05))
        self._bell = WakeEvent()
        self._stopping = False
        self._told: set[int] = set()

    def stop(self) -> None:
        """Extend no more."""
        self._stopping = True
        self._bell.ring()

    def run(self) -> None:
        """Beat until stopped."""
        beat_at = 0.0
        while not self._stopping:
            now = monotonic()
            try:
                for other in self._watched:
                    other.cut_if_stuck(max(self._seconds, _STUCK))
                if now >= beat_at:
                    self._beat()
                    # Workers that were started together do not beat together.
                    beat_at = now + self._seconds / _BEATS * random.uniform(0.8, 1)  # noqa: S311 - spreads the load
                self._hear(now)
                if self._housekeeping is not None:
                    self._housekeeping.turn(now)
                self._outage.over()
                wait = min(beat_at - monotonic(), _UNHEARD)
            except BaseException as error:  # noqa: BLE001 - whatever it is, leases must be kept
                self._stats.failures += 1
                wait = self._outage.failed(error)
                beat_at = 0.0
                self._tell_lost()
            if wait > 0:
                self._bell.wait(wait)
        self._line.close()

    def _beat(self) -> None:
        self._tell_lost()
        failures = []
        for source in self._sources:
            claims = [claim for claim in source.claims.held() if not claim.lost]
            try:
                if claims:
                    self._extend(source, claims)
            except Exception as error:  # noqa: BLE001 - what one queue refuses costs no other its leases
                failures.append(error)
        self._tell_lost()
        if failures:
            raise failures[0]

    def _extend(self, source: ServedQueue, claims: list[TrackedLease]) -> None:
        sent_at = monotonic()
        # Whoever waits longer for an answer has lost the lease by then.
        within = max(0.1, min(claim.deadline for claim in claims) - sent_at)
        asked = [claim.lease_id for claim in claims]

        def work(connection: Connection) -> list[tuple[int, int | None, list[int]]]:
            with translated(f"extend {len(asked)} leases of queue {source.queue.name!r}"):
                rows = connection.execute(
                    statements.heartbeat(source.target.schema),
                    {"lease_ids": asked, "lease": microseconds(self._lease)},
                ).all()
                connection.commit()
            return [(row.lease_id, row.expires_at, row.cancelled or []) for row in rows]

        self._stats.heartbeats += 1
        by_id = {claim.lease_id: claim for claim in claims}
        for lease_id, expires_at, cancelled in self._line.run(work, within=within):
            claim = by_id[lease_id]
            if expires_at is None:
                claim.lose()
            else:
                claim.prove(sent_at + self._seconds)
            if cancelled:
                self._cancel(claim, set(cancelled))

    def _cancel(self, claim: TrackedLease, message_ids: set[int]) -> None:
        told = []
        for context in claim.held.copy():
            if context.delivery.message_id in message_ids and not context.cancelled:
                context.cancelled = True
                told.append(context)
        if told:
            self._stats.cancelled += len(told)
            self._tell(told)

    def _tell_lost(self) -> None:
        """Tell who works under a lease that is lost, once a lease."""
        alive = set()
        for source in self._sources:
            for claim in source.claims.held():
                alive.add(claim.lease_id)
                if claim.lost and claim.lease_id not in self._told:
                    self._told.add(claim.lease_id)
                    contexts = list(claim.held.copy())
                    log.error(
                        "worker %s lost lease %d with %d deliveries of queue %s: it could not be extended in time",
                        self._name,
                        claim.lease_id,
                        len(contexts),
                        source.queue.name,
                        extra={"worker": self._name, "queue": source.queue.name, "lease_id": claim.lease_id},
                    )
                    self._tell(contexts)
        self._told &= alive

    def _hear(self, now: float) -> None:
        """Apply the signals of queues that nobody has dequeued from for a while: all handlers are at work."""
        for source in self._sources:
            if (
                now - source.heard_at > _UNHEARD
                and source.looks.next_at <= now
                and source.asking.acquire(blocking=False)
            ):
                try:
                    self._line.run(source.consumer.hear, within=self._seconds / _BEATS)
                    source.heard_at = monotonic()
                finally:
                    source.asking.release()
