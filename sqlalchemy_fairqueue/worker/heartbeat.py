"""Lease heartbeats of a worker: they keep its leases alive, and end them when it stops.

They run in a thread of their own, so that no handler or event loop can delay them for long. A lease that holds a
delivery is extended several times before it would end. A lease also ends by the worker's own clock (see ``leases``);
then the heartbeat logs the loss and interrupts the handlers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.deliveries import heartbeat
from sqlalchemy_fairqueue.worker.telemetry import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.deliveries import ExtendedLease
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery, LeaseRegistry, TrackedLease
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats


class Heartbeat:
    """The heartbeats of one worker.

    Args:
        connection: That of the thread that calls it.
        options: The worker's.
        queues: The queues.
        leases: What the worker holds.
        interrupt: Called with deliveries whose handlers should stop: the lease is lost, or the message was cancelled.
        stats: It counts heartbeats and cancelled messages.
    """

    def __init__(
        self,
        *,
        connection: DedicatedConnection,
        options: WorkerOptions,
        queues: Sequence[ServedQueue],
        leases: LeaseRegistry,
        interrupt: Callable[[list[HeldDelivery]], None],
        stats: WorkerStats,
    ) -> None:
        self._connection = connection
        self._clock = options.clock
        self._queues = queues
        self._leases = leases
        self._lease = options.lease
        self._end_within = options.timings.end_leases
        self._interrupt = interrupt
        self._stats = stats
        self._name = options.name
        # Lost leases whose handlers were interrupted.
        self._told: set[TrackedLease] = set()

    def extend_all(self) -> None:
        """Extend all leases once.

        Raises:
            Exception: The first failure; the leases of other queues are extended all the same.
        """
        self._tell_lost()
        failures = []
        try:
            for queue in self._queues:
                leases = [lease for lease in self._leases.held(queue) if not lease.lost]
                try:
                    if leases:
                        self._extend(queue, leases)
                except Exception as error:  # noqa: BLE001 - what one queue refuses costs no other its leases
                    failures.append(error)
        finally:
            self._tell_lost()
        if failures:
            raise failures[0]

    def end(self) -> None:
        """End the leases that nothing is held under: the worker has stopped. Those that stay expire.

        Raises:
            Exception: The first failure; the leases of other queues are ended all the same.
        """
        failures = []
        for queue in self._queues:
            known = {*self._leases.ids(queue), *queue.consumer.lease_ids()}
            if queue.waiting_lease is not None:
                known.add(queue.waiting_lease)
            if not known:
                continue
            lease_ids = sorted(known)

            def work(connection: Connection, queue: ServedQueue = queue, lease_ids: list[int] = lease_ids) -> None:
                doing = f"end {len(lease_ids)} leases of {queue.target.named()}"
                queue.target.call("fq_end_leases", doing, lease_ids=lease_ids).rows(connection)
                connection.commit()

            try:
                self._connection.run(work, within=self._end_within)
            except Exception as error:  # noqa: BLE001 - as in beat
                failures.append(error)
        if failures:
            raise failures[0]

    def _extend(self, queue: ServedQueue, leases: list[TrackedLease]) -> None:
        sent_at = self._clock()
        # After a longer wait for the answer the lease is lost.
        within = max(0.1, min(lease.deadline for lease in leases) - sent_at)
        by_id = {lease.lease_id: lease for lease in leases}

        def work(connection: Connection) -> list[ExtendedLease]:
            extended = heartbeat(connection, queue.target, list(by_id), self._lease)
            connection.commit()
            return extended

        self._stats.heartbeats += 1
        for lease_id, expires_at, cancelled in self._connection.run(work, within=within):
            lease = by_id[lease_id]
            if expires_at is None:
                lease.lose()
            else:
                lease.extend(sent_at + self._lease.total_seconds())
            if cancelled:
                self._cancel(lease, set(cancelled))

    def _cancel(self, lease: TrackedLease, message_ids: set[int]) -> None:
        cancelled = []
        for held in lease.held.copy():
            if held.delivery.message_id in message_ids and not held.cancelled:
                held.cancelled = True
                cancelled.append(held)
        if cancelled:
            self._stats.cancelled += len(cancelled)
            self._interrupt(cancelled)

    def _tell_lost(self) -> None:
        """Log each lost lease and interrupt its handlers, once a lease."""
        leases = [(queue, lease) for queue in self._queues for lease in self._leases.held(queue)]
        for queue, lease in leases:
            if lease.lost and lease not in self._told:
                self._told.add(lease)
                deliveries = list(lease.held.copy())
                log.error(
                    "worker %s lost lease %d with %d deliveries of queue %s: it could not be extended in time",
                    self._name,
                    lease.lease_id,
                    len(deliveries),
                    queue.queue.name,
                    extra={"worker": self._name, "queue": queue.queue.name, "lease_id": lease.lease_id},
                )
                self._interrupt(deliveries)
        self._told &= {lease for _, lease in leases}
