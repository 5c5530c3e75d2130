"""Clock and durations of a worker, and what follows from them: backoffs, times of polls, prefetch.

If a queue gave all messages that the worker asked for, the worker polls it again at once, otherwise soon. While polls
give nothing, the time between them doubles up to the poll interval. If a message is due earlier, a poll comes then.

A worker that can be woken registers a wait, polls once more, and then relies on wake-ups. Each enqueue after the
registration wakes the worker. While many messages come, the worker ends the wait, since frequent polls then cost less
than wake-ups. A transaction that enqueued before the registration, and commits after the next poll, wakes nobody. So
the worker polls again about 0.2 seconds later. If such a transaction commits even later, the worker finds its messages
at the next poll, at most one poll interval later.

Handlers should not wait for the database between two short messages. But a message in the buffer has used its tenant's
turn and a slot of its limit although nobody works on it. So the worker estimates from recent handler times how many
messages its handlers finish during a few dequeues, at most a tenth of a second, and buffers no more. If handlers take
longer, it takes a message only when a handler is free.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, inf

from sqlalchemy_fairqueue.database.deliveries import LONGEST_WAIT
from sqlalchemy_fairqueue.texts import logged
from sqlalchemy_fairqueue.worker.telemetry import WorkerLog

Clock = Callable[[], float]
"""Returns seconds that never go back, and that go on while the process is stopped, as time.monotonic does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Durations in seconds, counts, and one factor. Timings whose names say all are not listed.

    Attributes:
        heartbeats: Heartbeats in the duration of a lease. If two in a row fail, the next dequeue makes a new lease.
        hear_after: The worker hears the signals of a queue after this time without a dequeue, if a poll is due.
        charge_every: Interval of charges for handlers that run, in queues that are fair by seconds.
        stuck_after: A call to dequeue, settle, run schedules or finish groups is cut after this long without an answer,
            or after the duration of a lease if that is longer.
        housekeeping_call: A statement of housekeeping is cut only after this, since it may delete many large rows.
        pruned_at_once: Most rows of a kind, or dead letters of a queue, that housekeeping deletes in one transaction.
        unanswered_after: Time from an unanswered dequeue to the first lookup of what it took.
        poll_soon: Time to the next poll after one that gave less than it asked for, if no wait is registered.
        poll_later: Delay of a poll that will probably find nothing, since another consumer was woken for the message.
        poll_locked: While other transactions have a due message locked, the least pause between polls doubles with each
            poll that gives nothing, up to half of this time. A drain also waits for messages due within this time.
        poll_drift: A factor. During a wait, the pause before the next poll is this factor times the length of the wait
            so far (at least ``poll_soon``), but at most the poll interval. Such polls find what a transaction enqueued
            before the wait and commits during the wait.
        longest_wait: The longest time for which a wait is registered; a dead worker's wait ends by then.
        wait_margin: A wait is registered for two poll intervals plus this.
        ahead: The most work in the buffer, in seconds.
        trips: The buffer holds work for the time of this many dequeues; a dequeue begins when the buffer is half empty.
        stale_after: If the next delivery has waited in the buffer this long, the whole buffer is given back. An event
            loop that was asked to take from the buffer, and has not done so for this long, counts as blocked.
        longest_sleep: A thread without other work looks again after this long.
        unsettled: While more deliveries than this are unsettled, the fetcher takes no messages.
        may_hold_slot: After the worker settles a delivery that was taken longer ago than this, it polls. A limit may
            have been set since the dequeue, and the settlement may have freed a slot of that limit.
        stop_settling: How long a stop waits for the settler to end, before it cuts the settler's call.
        leave_thread: How long a stop waits for the thread ``-limits``, and for a thread whose call it has cut.
        stop_dequeue: How long a stop waits for the present dequeue, even with a shorter grace period, and for the
            present statement of a round, such as one of housekeeping.
        signal_again: A second SIGTERM or SIGINT within this time is ignored; a later one ends the process.
        cleanup: How long a cancelled handler may clean up, or a child process may take to end.
        ignored_cancel: A handler hangs if it runs this long after it was told that its message is cancelled.
        child_start: How long a child process may take to start and to import a handler, both together.
        lease_check: Interval of checks whether a handler in a child process may go on, and whether the worker stops.
        connect: How long a new connection may take; the drivers' own limits are minutes.
        silence: How often the listener checks that its connection lives and that commits notify.
        answer: How long the listener waits for an answer. Calls on the heartbeat's connection without a limit of their
            own have this one, or one interval of heartbeats if that is longer.
    """

    heartbeats: int = 4
    hear_after: float = 2.0
    charge_every: float = 1.0
    stuck_after: float = 30.0
    housekeeping_call: float = 600.0
    housekeeping_first: float = 60.0
    housekeeping_every: float = 3600.0
    samples_every: float = 60.0
    history_days: int = 7
    pruned_at_once: int = 10_000
    schedules_every: float = 5.0
    schedules_at_once: int = 500
    slots_at_once: int = 100
    schedule_again: float = 60.0
    groups_every: float = 1.0
    stop_requests_every: float = 2.0
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
    longest_sleep: float = 3600.0
    unsettled: int = 2000
    settle_batch: int = 1000
    settle_bytes: int = 8 * 2**20
    settle_at_stop: float = 10.0
    lock_timeout: float = 0.2
    locked_again: float = 1.0
    may_hold_slot: float = 1.0
    stop_settling: float = 15.0
    leave_thread: float = 2.0
    end_leases: float = 2.0
    stop_dequeue: float = 1.0
    signal_check: float = 0.5
    signal_again: float = 2.0
    drain_check: float = 0.01
    cleanup: float = 1.0
    ignored_cancel: float = 30.0
    child_start: float = 60.0
    lease_check: float = 0.1
    connect: float = 30.0
    silence: float = 15.0
    answer: float = 10.0
    backoff_first: float = 0.05
    backoff_log: float = 60.0


@dataclass(eq=False)
class Backoff:
    """Consecutive failures of one step, which is tried again after growing waits, at most *cap* seconds.

    It logs the first failure, then one a minute, and the recovery, as warnings, so that a night without a database
    cannot fill a disk. *step* says what fails, for the log: ``"dequeue from 'documents'"``.
    """

    step: str
    worker: str
    clock: Clock
    timings: Timings
    cap: float = 5.0
    failures: int = field(default=0, init=False)
    _since: float = field(default=0.0, init=False)
    _logged_at: float = field(default=0.0, init=False)

    def failed(self, error: BaseException) -> float:
        now = self.clock()
        if not self.failures:
            self._since = now
        self.failures += 1
        if self.failures == 1 or now - self._logged_at >= self.timings.backoff_log:
            self._logged_at = now
            self._tell(
                "cannot %s, trying again (failure %d, %.0f s): %s: %s",
                *(self.failures, now - self._since, type(error).__name__, logged(error)),
            )
        doubled: float = self.timings.backoff_first * 2.0 ** min(self.failures - 1, 16)
        return min(self.cap, doubled) * (0.5 + random.random() / 2)  # noqa: S311 - spreads the load

    def succeeded(self) -> None:
        if self.failures:
            self._tell("can %s again, after %.1f s and %d failures", self.clock() - self._since, self.failures)
            self.failures = 0

    def _tell(self, text: str, *given: object) -> None:
        log = WorkerLog(self.worker)
        log.warning(text, self.step, *given, extra={"step": self.step, "failures": self.failures})


# PollSchedule keeps an exponential average of the rate at which messages come, over this many seconds.
_LATELY = 0.05
# If more than 140 messages a second come, wake-ups cost more than frequent polls.
_BUSY = 140 * _LATELY
# At half of this rate wake-ups are cheaper again, if the last poll gave nothing.
_CALM = _BUSY / 2
# A batch counts as no more messages than this, since one transaction notifies once.
_MOST_AT_ONCE = 2


@dataclass(slots=True, eq=False)
class PollSchedule:
    """The polls of one queue; times are by the worker's clock, in seconds.

    Attributes:
        waiting_until: Until when the worker's wait is registered; 0 if no wait is registered, or if it may be lost. Any
            thread may set 0; then a wait is registered anew when it is needed.
        empty_at: When the last poll began, if it found that nothing can be delivered for a while; otherwise 0.
    """

    interval: float
    timings: Timings
    next_at: float = 0.0
    waiting_until: float = 0.0
    empty_at: float = 0.0
    _began_at: float = 0.0
    _waiting_since: float = 0.0
    _lately: float = 0.0
    _lately_at: float = 0.0
    _nothing: int = 0
    _asked_at: float = inf
    _woken_at: float = inf

    def needs_wait(self, now: float) -> bool:
        return self._nothing > 0 and self.waiting_until - now < self.interval and self._lately_by(now) < _CALM

    def needs_no_wait(self) -> bool:
        return self.waiting_until > 0 and self._lately > _BUSY

    def wait_begun(self, now: float, until: float) -> None:
        if self.waiting_until <= now:
            self._waiting_since = now
        self.waiting_until = until

    def wait_ended(self, now: float) -> None:
        self.waiting_until = 0.0
        self.next_at = min(self.next_at, now + self.timings.poll_soon)

    def begin(self, now: float) -> None:
        self._began_at = now
        self.empty_at = 0.0
        # This poll sees all earlier commits.
        self._woken_at = inf

    def found(self, now: float, due_in: float | None, *, count: int, full: bool) -> None:
        """Note that a poll gave *count* messages; *full* says that these are as many as it asked for."""
        self._lately = self._lately_by(now) + min(count, _MOST_AT_ONCE)
        self._lately_at = now
        self._nothing = 0
        due = inf if due_in is None else due_in
        self._next(now if full else now + min(due, self._until_woken(now, self.timings.poll_soon)))

    def nothing(self, now: float, due_in: float | None, *, locked: bool = False) -> None:
        """Note that a poll gave nothing; *locked* says that another transaction has a due message locked."""
        due = inf if due_in is None else due_in
        if not locked and due > self.timings.poll_locked:
            self.empty_at = self._began_at
        # While many messages come, an empty poll is chance, so the interval does not grow.
        before = 0 if self._lately_by(now) >= _CALM else self._nothing
        # If another call has a ready message locked, the message may be free again soon. But polls need a pause between
        # them, and this pause grows while the message stays locked.
        soonest = min(self.timings.poll_locked, self.timings.poll_soon * 2 ** min(before, 10)) / 2
        wait = self._until_woken(now, min(self.interval, self.timings.poll_soon * 2 ** min(before, 20)))
        self._nothing = before + 1
        self._next(now + min(max(due, soonest), wait))

    def failed(self, now: float, wait: float) -> None:
        self.waiting_until = 0.0
        self.next_at = now + wait

    def poll_now(self, now: float) -> bool:
        """Make a poll due at *now*, since there may be messages. Return whether the next poll was due later."""
        # A poll that begins meanwhile resets this, and sees the messages.
        at = self._woken_at = min(self._woken_at, now)
        if self.next_at <= at:
            return False
        self.next_at = at
        return True

    def poll_at(self, at: float) -> None:
        """Make a poll due at *at*, when a message that this worker returned with a delay is due."""
        self._asked_at = min(self._asked_at, at)
        self.next_at = min(self.next_at, at)

    def _lately_by(self, now: float) -> float:
        return self._lately * exp((self._lately_at - now) / _LATELY)

    def _until_woken(self, now: float, otherwise: float) -> float:
        """Return for how many seconds the worker can rely on wake-ups; if no wait is registered, return *otherwise*."""
        if self.waiting_until <= now:
            return otherwise
        return min(
            self.interval,
            self.waiting_until - now,
            self.timings.poll_drift * max(self.timings.poll_soon, now - self._waiting_since),
        )

    def _next(self, at: float) -> None:
        self.next_at = at
        if self._asked_at <= self._began_at:
            self._asked_at = inf
        earlier = min(self._woken_at, self._asked_at)
        if earlier < at:
            self.next_at = min(self.next_at, earlier)


# The weight of the newest value in an average.
_WEIGHT = 0.1


@dataclass(slots=True)
class Prefetch:
    """Says how many messages to take, from moving averages of the durations of handlers (all kinds) and dequeues."""

    concurrency: int
    timings: Timings
    most: int
    _seconds: float = field(init=False)
    _trip: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        # At first no duration is known, so each message is taken when a handler is free for it.
        self._seconds = 2 * self.timings.ahead

    def observe(self, seconds: float) -> None:
        """Note the duration of a handler. Any thread may call it; a lost update is harmless."""
        self._seconds += _WEIGHT * (seconds - self._seconds)

    def fetched(self, seconds: float) -> None:
        """Note the duration of a dequeue. Only the thread that dequeues calls it."""
        trip = seconds if self._trip is None else self._trip
        self._trip = trip + _WEIGHT * (seconds - trip)

    def ahead(self, busy: float) -> int:
        """Return how many messages may wait in the buffer, if all handlers have been busy for *busy* seconds."""
        seconds = max(self._seconds, busy)
        if seconds >= self.timings.ahead:
            return 0
        covered = min(self.timings.ahead, self.timings.trips * (self._trip or 0.0))
        return min(self.most, int(self.concurrency * covered / max(seconds, 1e-6)))

    def room(self, free: int, buffered: int, busy: float) -> int:
        """Return how many messages to dequeue now for *free* handlers and the buffer; 0 if too few to be worthwhile."""
        ahead = self.ahead(busy)
        room = free + ahead - buffered
        # Take half a buffer in one call, not one message in each, unless a handler is free now.
        worth = 1 if buffered < max(free, 1) else max(1, ahead // 2)
        return room if room >= worth else 0
