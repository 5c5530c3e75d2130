"""Duties of a worker: functions that one thread calls again and again, on one connection.

One rule holds for all of them. A duty that raises is called again after its own backoff, and the others go on. So a
duty must not wait for long: leases wait with it.

No handler or event loop can delay the heartbeat for long. A lease that holds a delivery is extended several times
before it would end. A lease also ends by the worker's own clock (see ``leases``); then the heartbeat logs the loss and
interrupts the handlers.

A request of an operator to stop is read by a statement of one row for each queue. So the worker sees it while it waits,
while all handlers are busy, and while it has no lease. A worker that obeys a request leaves it in place, because other
processes may have the same name. A worker ignores requests from before its own start.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database import deliveries
from sqlalchemy_fairqueue.database.deliveries import Token
from sqlalchemy_fairqueue.database.stats import read_stop_requests
from sqlalchemy_fairqueue.texts import logged
from sqlalchemy_fairqueue.worker.wakeups import WakeEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy_fairqueue.database.stats import StopRequest
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery, ServedQueue, TrackedLease
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats


@dataclass(frozen=True, slots=True)
class Duty:
    """A function to be called again and again.

    Attributes:
        step: What it does, for the log: ``"extend its leases"``.
        function: The function. It may return after how many seconds it is to be called again, if that is sooner.
        interval: Seconds from the begin of a call to that of the next one.
        spread: Each interval is multiplied by a random number between these: workers that were started together do not
            call together.
        first: The first call comes within so many seconds.
    """

    step: str
    function: Callable[[], float | None]
    interval: float
    spread: tuple[float, float] = (1.0, 1.0)
    first: float = 0.0

    def next_interval(self) -> float:
        """The interval to the next call."""
        return self.interval * random.uniform(*self.spread)  # noqa: S311 - spreads the load


class Looper:
    """The loop that calls the duties of one worker.

    Args:
        duties: The duties; those that are due together are called in this order.
        connection: Closed at the end.
        last: Called at the end, before; a failure of it is logged at level debug.
        options: The worker's.
        stats: It counts failures.
    """

    def __init__(
        self,
        duties: Sequence[Duty],
        connection: DedicatedConnection,
        last: Callable[[], None],
        options: WorkerOptions,
        stats: WorkerStats,
    ) -> None:
        now = options.clock()
        # What fails is tried again a few times before a lease ends.
        cap = max(options.lease.total_seconds() / 10, 0.05)
        self._duties = list(duties)
        self._due_at = [now + duty.first * random.random() for duty in duties]  # noqa: S311 - spreads the load
        self._backoffs = [options.backoff(duty.step, cap) for duty in duties]
        self._connection = connection
        self._last = last
        self._log = options.log
        self._clock = options.clock
        self._stats = stats
        self._event = WakeEvent()
        self._stopping = False

    def stop(self) -> None:
        """Call no more."""
        self._stopping = True
        self._event.set()

    def run(self) -> None:
        """Call duties until it is stopped."""
        while not self._stopping:
            for number, due_at in enumerate(self._due_at):
                if due_at <= self._clock() and not self._stopping:
                    self._call(number)
            if (wait := min(self._due_at) - self._clock()) > 0:
                self._event.wait(wait)
        try:
            self._last()
        except Exception as error:  # noqa: BLE001 - a stop must not fail by it
            self._log.debug("could not end its leases, which expire: %s", logged(error))
        self._connection.close()

    def _call(self, number: int) -> None:
        duty = self._duties[number]
        began = self._clock()
        try:
            sooner = duty.function()
            self._backoffs[number].succeeded()
            interval = duty.next_interval()
            self._due_at[number] = began + (interval if sooner is None else min(sooner, interval))
        except BaseException as error:  # noqa: BLE001 - after any failure the other duties go on
            self._stats.failed()
            self._due_at[number] = self._clock() + self._backoffs[number].failed(error)


def run_all(steps: Iterable[Callable[[], object]]) -> None:
    """Take all of these steps: what one of them refuses costs no other its turn.

    Raises:
        Exception: The first failure, after the last step.
    """
    failures = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    if failures:
        raise failures[0]


def by_schema(queues: Iterable[ServedQueue]) -> dict[str | None, dict[str, ServedQueue]]:
    """Return the queues of each installation, by name."""
    found: dict[str | None, dict[str, ServedQueue]] = {}
    for queue in queues:
        found.setdefault(queue.target.schema, {})[queue.target.queue] = queue
    return found


def cut_stuck_calls(connections: Sequence[DedicatedConnection], seconds: float) -> None:
    """End calls on other threads' connections that have had no answer for so long: they must not last for ever."""
    for connection in connections:
        connection.cut_if_stuck(seconds)


def hear_signals(connection: DedicatedConnection, queues: Sequence[ServedQueue], options: WorkerOptions) -> None:
    """Apply the signals of queues that the fetcher has not dequeued from for a while: all handlers are at work."""
    now = options.clock()

    def hear(queue: ServedQueue) -> None:
        is_due = now - queue.heard_at > options.timings.hear_after and queue.polls.next_at <= now
        if is_due and queue.dequeuing.acquire(blocking=False):
            try:
                connection.run(queue.consumer.hear, within=options.beat)
                queue.heard_at = options.clock()
            finally:
                queue.dequeuing.release()

    run_all(partial(hear, queue) for queue in queues)


def charge_running(connection: DedicatedConnection, queues: Sequence[ServedQueue], options: WorkerOptions) -> None:
    """Charge the channels of queues that are fair by seconds for handlers that run, so that none gets all workers."""

    def charge(queue: ServedQueue) -> None:
        held = [one for lease in queue.held() for one in lease.held.copy()]
        charges = [(one, to) for one in held if (to := one.charge_on()) is not None]
        if not charges:
            return
        charged = [one.delivery for one, _ in charges]
        tokens = [Token(one.message_id, one.row_id, one.lease.id, one.deliveries) for one in charged]
        send = partial(deliveries.charge_running, target=queue.target, tokens=tokens, charges=[to for _, to in charges])
        try:
            connection.run(send, within=options.beat)
        except Exception:
            for one, (_, before) in charges:
                one.not_charged(before)
            raise

    run_all(partial(charge, queue) for queue in queues)


class Heartbeat:
    """The heartbeats of one worker.

    Args:
        connection: That of the thread that calls it.
        options: The worker's.
        queues: The queues.
        interrupt: Called with deliveries whose handlers should stop: the lease is lost, or the message was cancelled.
        stats: It counts heartbeats and cancelled messages.
    """

    def __init__(
        self,
        *,
        connection: DedicatedConnection,
        options: WorkerOptions,
        queues: Sequence[ServedQueue],
        interrupt: Callable[[list[HeldDelivery]], None],
        stats: WorkerStats,
    ) -> None:
        self._connection = connection
        self._options = options
        self._queues = queues
        self._interrupt = interrupt
        self._stats = stats
        # Lost leases whose handlers were interrupted.
        self._told: set[TrackedLease] = set()

    def extend_all(self) -> None:
        """Extend all leases once."""

        def extend(queue: ServedQueue) -> None:
            if leases := [lease for lease in queue.held() if not lease.lost]:
                self._extend(queue, leases)

        self._tell_lost()
        try:
            run_all(partial(extend, queue) for queue in self._queues)
        finally:
            self._tell_lost()

    def end(self) -> None:
        """End the leases that nothing is held under: the worker has stopped. Those that stay expire."""
        run_all(partial(self._end, queue) for queue in self._queues)

    def _end(self, queue: ServedQueue) -> None:
        known = {*queue.leases, *queue.consumer.lease_ids(), queue.waiting_lease}
        if lease_ids := sorted(one for one in known if one is not None):
            doing = f"end {len(lease_ids)} leases of {queue.target.named()}"
            end = queue.target.call("fq_end_leases", doing, lease_ids=lease_ids)
            self._connection.run(end.rows, within=self._options.timings.end_leases)

    def _extend(self, queue: ServedQueue, leases: Sequence[TrackedLease]) -> None:
        by_id = {lease.lease_id: lease for lease in leases}
        duration, sent_at = self._options.lease, self._options.clock()
        # After a longer wait for the answer the lease is lost.
        within = max(0.1, min(lease.deadline for lease in leases) - sent_at)
        extend = partial(deliveries.heartbeat, target=queue.target, lease_ids=list(by_id), lease=duration)
        self._stats.heartbeats += 1
        for lease_id, expires_at, cancelled in self._connection.run(extend, within=within):
            lease = by_id[lease_id]
            if expires_at is None:
                lease.lose()
            else:
                lease.extend(sent_at + duration.total_seconds())
            if cancelled:
                self._cancel(lease, set(cancelled))

    def _cancel(self, lease: TrackedLease, message_ids: set[int]) -> None:
        cancelled = []
        for held in lease.held.copy():
            if held.delivery.message_id in message_ids and not held.cancelled:
                held.cancelled = True
                held.first.cancelled_at = held.first.cancelled_at or self._options.clock()
                cancelled.append(held)
        if cancelled:
            self._stats.cancelled += len(cancelled)
            self._interrupt(cancelled)

    def _tell_lost(self) -> None:
        """Log each lost lease and interrupt its handlers, once a lease."""
        leases = [(queue, lease) for queue in self._queues for lease in queue.held()]
        for queue, lease in leases:
            if lease.lost and lease not in self._told:
                self._told.add(lease)
                held = list(lease.held.copy())
                self._options.log.error(
                    "lost lease %d with %d deliveries of queue %s: it could not be extended in time",
                    *(lease.lease_id, len(held), queue.queue.name),
                    extra={"queue": queue.queue.name, "lease_id": lease.lease_id},
                )
                self._interrupt(held)
        self._told &= {lease for _, lease in leases}


class StopRequests:
    """The requests to one worker to stop.

    Args:
        queues: The worker's.
        options: The worker's.
        stop: Begins the stop, in another thread. It is called once.
    """

    def __init__(self, queues: Sequence[ServedQueue], options: WorkerOptions, stop: Callable[[], None]) -> None:
        self._options = options
        self._stop = stop
        self._queues = by_schema(queues)
        self._before: set[tuple[str | None, StopRequest]] = set()
        self._obeyed = False

    def begin(self, connection: DedicatedConnection) -> None:
        """Note the requests that stand before the worker starts."""
        self._before = set(self._read(connection))

    def poll(self, connection: DedicatedConnection) -> None:
        """Obey a request that was made since then."""
        if self._obeyed:
            return
        for schema, request in self._read(connection):
            if (schema, request) not in self._before:
                self._obeyed = True
                self._options.log.info(
                    "stops: %r asked it to, at %s, on queue %s",
                    *(request.requested_by, f"{request.requested_at:%Y-%m-%d %H:%M:%S} UTC", request.queue),
                )
                self._stop()
                return

    def _read(self, connection: DedicatedConnection) -> Iterator[tuple[str | None, StopRequest]]:
        for schema, queues in self._queues.items():
            read = partial(read_stop_requests, schema=schema, queues=list(queues), consumer=self._options.name)
            for request in connection.run(read):
                yield schema, request
