"""Clock, durations and backoffs of a worker.

Every part of a worker gets the clock and the durations when it is made, so that tests can pass others. They are not
for programs, which choose the behaviour by the arguments of ``Worker``. The only I/O here is the log of a backoff.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy_fairqueue.database.deliveries import LONGEST_WAIT
from sqlalchemy_fairqueue.texts import logged
from sqlalchemy_fairqueue.worker.telemetry import WorkerLog

Clock = Callable[[], float]
"""Seconds that never go back and go on while the process is stopped, as time.monotonic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Durations in seconds, and the counts that belong to them.

    Attributes:
        heartbeats: Heartbeats in the time of a lease. Two may fail before a dequeue needs a new lease.
        hear_after: The worker hears the signals of a queue that nobody has dequeued from for so long.
        charge_every: Time between two charges for handlers that run, in queues that are fair by seconds.
        stuck_after: A call that takes, settles, runs schedules or finishes groups and has had no answer for so long is
            cut, if the lease is not longer.
        housekeeping_call: A statement of housekeeping that has had no answer for so long is cut. It may delete many
            large rows, and nothing waits for it.
        housekeeping_first: The first housekeeping comes within so long.
        housekeeping_every: Time between two rounds of housekeeping, give or take half of it.
        history_days: Housekeeping makes the partitions of so many days ahead.
        pruned_at_once: Housekeeping deletes so many rows of a kind, or dead letters of a queue, in a transaction.
        schedules_every: Time between two polls for schedules that are due, where none is known to be due sooner.
        schedules_at_once: Most schedules of a queue that one poll finds.
        slots_at_once: Most slots of a schedule that are run in one transaction.
        schedule_again: A schedule that could not be run is tried again after so long.
        groups_every: Time between two polls for groups that may be finished.
        notes_at_once: Most notes of groups that one statement folds.
        groups_at_once: Most groups that one statement finishes.
        stop_requests_every: Time between two polls for requests of operators to stop.
        forgotten_at_once: Housekeeping reads, or deletes, so many channels in a transaction.
        unanswered_after: Time from a dequeue without an answer to the first lookup of what it took: the database may
            still be at it when the connection is gone.
        poll_soon: Time to the next poll after one that gave less than it asked for.
        poll_later: Delay of a poll that will probably find nothing, since another consumer was woken for the message.
        poll_locked: Longest time to the next poll while messages are ready and in the hands of another call.
        poll_drift: A worker that waits polls again after this multiple of the time that it has waited: transactions
            that began before it waited commit meanwhile.
        longest_wait: A wait is registered for no longer, whatever the poll interval: a dead worker waits as long.
        wait_margin: A wait is registered for two poll intervals and so long.
        ahead: At most so much work waits in the buffer.
        trips: The buffer holds work for so many dequeues; half of that when one begins.
        stale_after: A delivery that has waited in the buffer for so long is given back.
        fetch_check: The fetcher notices within so long that its executor is closed.
        unsettled: With more unsettled deliveries the fetcher takes no messages.
        settle_batch: Most deliveries that one call settles.
        settle_bytes: Most bytes of results that one call keeps, or one result that is larger.
        settle_at_stop: A stop waits so long for a database that is away.
        lock_timeout: A call that settles waits so long for a message that somebody has locked.
        locked_again: Time until a locked message is tried again.
        may_hold_slot: A delivery this old may hold a slot of a limit that was set after it was taken.
        stop_part: A part that is told to stop may take so long, after what it was doing.
        end_leases: A stop waits so long for the answer of a database that is to end the worker's leases.
        stop_dequeue: A stop waits so long for a dequeue that is under way, also with a shorter grace.
        signal_check: Time between two checks for an operating system signal.
        signal_again: A signal that comes within so long of the first one repeats it; a later one ends the process.
        drain_check: Time between two checks whether a worker is drained.
        cleanup: A cancelled handler may clean up for so long, and a child process that is to end.
        ignored_cancel: A handler hangs if it goes on for so long after it was told that its message is cancelled.
        child_start: A child process may take so long to start, and to import a handler.
        lease_check: Longest time between two checks of the leases in an event loop.
        connect: A new connection may take so long. The drivers' own limits are minutes.
        silence: The listening connection is asked every so often whether it is alive and anybody is notified.
        answer: It has so long for the answer.
        backoff_first: First wait after a failure; each further one is twice as long.
        backoff_log: Time between two log lines about the same failure.
    """

    heartbeats: int = 4
    hear_after: float = 2.0
    charge_every: float = 1.0
    stuck_after: float = 30.0
    housekeeping_call: float = 600.0
    housekeeping_first: float = 60.0
    housekeeping_every: float = 3600.0
    history_days: int = 7
    pruned_at_once: int = 10_000
    schedules_every: float = 5.0
    schedules_at_once: int = 500
    slots_at_once: int = 100
    schedule_again: float = 60.0
    groups_every: float = 1.0
    notes_at_once: int = 10_000
    groups_at_once: int = 100
    stop_requests_every: float = 2.0
    forgotten_at_once: int = 1_000
    unanswered_after: float = 2.0
    poll_soon: float = 0.005
    poll_later: float = 0.02
    poll_locked: float = 0.05
    poll_drift: float = 40.0
    longest_wait: float = LONGEST_WAIT.total_seconds()
    wait_margin: float = 1.0
    ahead: float = 0.1
    trips: float = 3.0
    stale_after: float = 1.0
    fetch_check: float = 30.0
    unsettled: int = 2000
    settle_batch: int = 1000
    settle_bytes: int = 8 * 2**20
    settle_at_stop: float = 10.0
    lock_timeout: float = 0.2
    locked_again: float = 1.0
    may_hold_slot: float = 1.0
    stop_part: float = 15.0
    end_leases: float = 2.0
    stop_dequeue: float = 1.0
    signal_check: float = 0.5
    signal_again: float = 2.0
    drain_check: float = 0.01
    cleanup: float = 1.0
    ignored_cancel: float = 30.0
    child_start: float = 60.0
    lease_check: float = 1.0
    connect: float = 30.0
    silence: float = 15.0
    answer: float = 10.0
    backoff_first: float = 0.05
    backoff_log: float = 60.0


class Backoff:
    """Failures in a row of one step, which is tried again after ever longer waits.

    It logs the first failure, then one a minute, and the recovery, as warnings: a night without a database must not
    fill a disk.

    Args:
        step: What fails, for the log: ``"dequeue from 'documents'"``.
        worker: The worker's name, for the log.
        clock: The worker's.
        timings: The worker's.
        cap: The longest wait in seconds.
    """

    def __init__(self, step: str, worker: str, clock: Clock, timings: Timings, cap: float = 5.0) -> None:
        self._step = step
        self._log = WorkerLog(worker)
        self._clock = clock
        self._timings = timings
        self._cap = cap
        self._failures = 0
        self._since = 0.0
        self._logged_at = 0.0

    def failed(self, error: BaseException) -> float:
        """Note a failure; how many seconds to wait before the next attempt."""
        now = self._clock()
        if not self._failures:
            self._since = now
        self._failures += 1
        if self._failures == 1 or now - self._logged_at >= self._timings.backoff_log:
            self._logged_at = now
            self._log.warning(
                "cannot %s, trying again (failure %d, %.0f s): %s: %s",
                self._step,
                self._failures,
                now - self._since,
                type(error).__name__,
                logged(error),
                extra={"step": self._step, "failures": self._failures},
            )
        doubled: float = self._timings.backoff_first * 2.0 ** min(self._failures - 1, 16)
        return min(self._cap, doubled) * (0.5 + random.random() / 2)  # noqa: S311 - spreads the load

    def succeeded(self) -> None:
        """The step worked."""
        if self._failures:
            self._log.warning(
                "can %s again, after %.1f s and %d failures",
                self._step,
                self._clock() - self._since,
                self._failures,
                extra={"step": self._step, "failures": self._failures},
            )
            self._failures = 0
