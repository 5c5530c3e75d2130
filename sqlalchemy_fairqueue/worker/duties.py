"""Scheduled duties of a worker: functions that one thread calls again and again.

One rule holds for all of them. A duty that raises is called again after its own backoff, and the others go on. So a
duty must not wait for long: leases wait with it.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.calls import call
from sqlalchemy_fairqueue.database.deliveries import Token
from sqlalchemy_fairqueue.database.deliveries import charge_running as send_charges
from sqlalchemy_fairqueue.texts import logged
from sqlalchemy_fairqueue.worker.connection import dedicated_connection
from sqlalchemy_fairqueue.worker.telemetry import log
from sqlalchemy_fairqueue.worker.timings import Backoff
from sqlalchemy_fairqueue.worker.wakeups import WakeEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery, LeaseRegistry
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue
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


class Duties:
    """The duties of one worker, and the loop that calls them.

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
        self._backoffs = [Backoff(duty.step, options.name, options.clock, options.timings, cap) for duty in duties]
        self._connection = connection
        self._last = last
        self._name = options.name
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
            log.debug(
                "worker %s could not end its leases, which expire: %s",
                self._name,
                logged(error),
                extra={"worker": self._name},
            )
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


def cut_stuck_calls(connections: Sequence[DedicatedConnection], seconds: float) -> None:
    """End calls on other threads' connections that have had no answer for so long: they must not last for ever."""
    for connection in connections:
        connection.watch.cut_if_stuck(seconds)


def hear_signals(connection: DedicatedConnection, queues: Sequence[ServedQueue], options: WorkerOptions) -> None:
    """Apply the signals of queues that the fetcher has not dequeued from for a while: all handlers are at work.

    Raises:
        Exception: The first failure; other queues are heard all the same.
    """
    timings = options.timings
    now = options.clock()
    within = options.lease.total_seconds() / timings.heartbeats
    failures = []
    for queue in queues:
        is_due = now - queue.heard_at > timings.hear_after and queue.polls.next_at <= now
        if is_due and queue.dequeuing.acquire(blocking=False):
            try:
                connection.run(queue.consumer.hear, within=within)
                queue.heard_at = options.clock()
            except Exception as error:  # noqa: BLE001 - what one queue refuses keeps no other unheard
                failures.append(error)
            finally:
                queue.dequeuing.release()
    if failures:
        raise failures[0]


def charge_running(
    connection: DedicatedConnection, queues: Sequence[ServedQueue], leases: LeaseRegistry, options: WorkerOptions
) -> None:
    """Charge the channels of queues that are fair by seconds for handlers that run, so that none gets all workers.

    Raises:
        Exception: The first failure; other queues are charged all the same.
    """
    within = options.lease.total_seconds() / options.timings.heartbeats
    failures = []
    for queue in queues:
        charges = [
            (held, charge)
            for lease in leases.held(queue)
            for held in lease.held.copy()
            if (charge := held.charge_on()) is not None
        ]
        if charges:
            try:
                connection.run(partial(_send_charges, queue, charges), within=within)
            except Exception as error:  # noqa: BLE001 - what one queue refuses keeps no other uncharged
                for held, (_, before) in charges:
                    held.not_charged(before)
                failures.append(error)
    if failures:
        raise failures[0]


def _send_charges(
    queue: ServedQueue, charges: Sequence[tuple[HeldDelivery, tuple[int, int]]], connection: Connection
) -> None:
    deliveries = [held.delivery for held, _ in charges]
    tokens = [Token(one.message_id, one.row_id, one.lease.id, one.deliveries) for one in deliveries]
    send_charges(connection, queue.target, tokens, [charge for _, charge in charges])
    connection.commit()


class Housekeeping:
    """Housekeeping that any worker may do for all, in the schemas of its queues.

    It makes partitions of the history ahead, and drops old ones. It deletes dead letters, results, finished groups and
    keys whose time is over, old slots of schedules, old requests to stop, and channels that have been idle for long.
    Several workers may do this at once: the SQL functions finish what another worker left. So it does not matter which
    workers do it, how often, or whether one dies. It runs in a thread of its own, so that no lease waits for it.

    Args:
        options: The worker's.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._schemas = sorted({queue.schema for queue in options.queues}, key=lambda schema: schema or "")
        self._name = options.name
        self._most = options.timings.pruned_at_once
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin a round in a thread of its own, unless one is under way."""
        if not self._stopping and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self.run, name=f"{self._name}-housekeeping", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the round after the statement that is under way, and wait for that for a moment."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join(self._options.timings.stop_dequeue)

    def run(self) -> None:
        """Do one round."""
        limit = self._options.timings.housekeeping_call
        # A role's statement_timeout is meant for calls of users. A transaction pooler's connection keeps no settings.
        time_limit = limit if self._options.listen else None
        connection = dedicated_connection(self._options, time_limit=time_limit, within=limit)
        for schema in self._schemas:
            tasks = (
                self._keep_history,
                self._prune_dead_letters,
                self._prune_expired,
                self._forget_channels,
            )
            for task in tasks:
                if self._stopping:
                    break
                try:
                    task(connection, schema)
                except Exception as error:  # noqa: BLE001 - the next round, or another worker, does it
                    log.warning(
                        "worker %s could not do its housekeeping: %s",
                        self._name,
                        logged(error),
                        extra={"worker": self._name},
                    )
        connection.close()

    def _keep_history(self, connection: DedicatedConnection, schema: str | None) -> None:
        ahead = self._options.timings.history_days
        changes = call(schema, "fq_keep_history", "keep the partitions of the history", ahead=ahead)
        for partition, action in connection.run(changes.rows):
            log.info("worker %s: partition %s %s", self._name, partition, action, extra={"worker": self._name})

    def _prune_dead_letters(self, connection: DedicatedConnection, schema: str | None) -> None:
        more = True
        while more and not self._stopping:
            prune = call(schema, "fq_prune_dead_letters", "prune dead letters", limit=self._most)
            pruned = connection.run(prune.rows)
            more = any(one.more for one in pruned)
            for queue, deleted, _ in pruned:
                log.info(
                    "worker %s: %s dead letters of queue %s deleted after their retention",
                    self._name,
                    deleted,
                    queue,
                    extra={"worker": self._name},
                )

    def _prune_expired(self, connection: DedicatedConnection, schema: str | None) -> None:
        """Delete keys, results, groups, slots and what else is over, a bounded number of rows in a transaction."""
        deleted = self._most
        while deleted == self._most and not self._stopping:
            prune = call(schema, "fq_prune_expired", "prune what has expired", limit=self._most)
            [(deleted, schedules)] = connection.run(prune.rows)
            for schedule in schedules:
                log.info(
                    "worker %s: schedule %s is removed: no worker has it in its code any more",
                    self._name,
                    schedule,
                    extra={"worker": self._name},
                )

    def _forget_channels(self, connection: DedicatedConnection, schema: str | None) -> None:
        """Delete the channels that were marked before, if the transactions of then have ended, and mark others."""
        size = self._options.timings.forgotten_at_once
        self._delete_channels(connection, schema)
        after: int | None = 0
        while after is not None and not self._stopping:
            mark = call(schema, "fq_mark_idle_channels", "mark idle channels", after=after, limit=size)
            after = connection.run(mark.value)
        self._delete_channels(connection, schema)

    def _delete_channels(self, connection: DedicatedConnection, schema: str | None) -> None:
        size = self._options.timings.forgotten_at_once
        forgotten, more = 0, True
        while more and not self._stopping:
            [row] = connection.run(call(schema, "fq_forget_channels", "forget idle channels", limit=size).rows)
            forgotten, more = forgotten + row.forgotten, row.more
        if forgotten:
            log.info("worker %s: %s idle channels forgotten", self._name, forgotten, extra={"worker": self._name})
