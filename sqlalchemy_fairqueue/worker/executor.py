"""Executors call the handlers of one worker, in threads or as tasks of an event loop (``tasks``)."""

from __future__ import annotations

import logging
import math
import shlex
import threading
from abc import ABC, abstractmethod
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import HandlerTimeout
from sqlalchemy_fairqueue.queue.results import encoded_result, results_of_batch
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from sqlalchemy_fairqueue.worker.child_processes import ChildProcesses
from sqlalchemy_fairqueue.worker.handling import (
    COMPLETE,
    RELEASE,
    Decision,
    Decisions,
    begin_handling,
    bound_call,
    call_in_session,
    decide_on_failure,
    of_error,
    of_return,
    without_call,
)
from sqlalchemy_fairqueue.worker.leases import Buffer
from sqlalchemy_fairqueue.worker.looper import Duty, Looper
from sqlalchemy_fairqueue.worker.operating_system import ForkGuard, join
from sqlalchemy_fairqueue.worker.timings import Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats
    from sqlalchemy_fairqueue.worker.wakeups import FetchTrigger

    SettleCallback = Callable[[HeldDelivery, Decision | None], None]


_DONE = (COMPLETE,)


class Executor(ABC):
    """Calls the handlers of one worker, and passes each finished delivery with its decision to *settle*.

    A handler that exceeds its timeout has failed, whether it returns or not. If nothing can interrupt it, it *hangs*:
    it counts towards the concurrency until it returns, so that a worker never runs more handlers than configured.

    Attributes:
        running: Deliveries whose handlers run, and since when. The thread that removes a delivery settles it.
        occupied: Deliveries whose handlers run or hang, and since when.
    """

    def __init__(
        self, options: WorkerOptions, stats: WorkerStats, trigger: FetchTrigger, settle: SettleCallback
    ) -> None:
        self.prefetch: Prefetch = Prefetch(options.concurrency, options.timings, options.prefetch)
        self.buffer: Buffer = Buffer()
        self.running: dict[HeldDelivery, float] = {}
        self.occupied: dict[HeldDelivery, float] = {}
        self._options = options
        self._log = options.log
        self._concurrency = options.concurrency
        self._clock = options.clock
        self._timings = options.timings
        self._trigger = trigger
        self._settle = settle
        self._stats = stats
        self._fork_guard = ForkGuard()
        self._children = ChildProcesses(options)
        # Time limits have a thread of their own, since Python threads cannot be interrupted, a blocked event loop runs
        # no timer, and the heartbeat waits for the database. Most handlers return long before their limit, so there is
        # no list of limits; the thread looks through the running handlers when the first limit may be over.
        duty = Duty("check the time of its handlers", self._check_time, self._timings.longest_sleep)
        self._time_limits = Looper("limits", [duty], options, stats)
        # Seconds between the end of a handler's timeout and its failure, so that a cancelled handler can clean up.
        self._clean_up = 0.0
        self._hung: set[HeldDelivery] = set()
        # Guards hanging handlers, and who gives up a delivery.
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._grace_until = math.inf

    def start(self) -> None:
        self._time_limits.start()

    def close(self) -> None:
        """End the thread of time limits and all child processes, after a stop."""
        self._time_limits.stop()
        until = self._clock() + self._timings.stop_part
        self._time_limits.join(lambda: until - self._clock())
        self._children.close()

    def begin_stop(self) -> None:
        """Begin no more deliveries, and tell running handlers that the worker stops."""
        self._stopping.set()
        for held in list(self.running):
            held.stopping = True
        self._children.tell_stopping()

    def shorten_grace(self, until: float) -> None:
        """Let the grace period end at *until*, if that is earlier; this works during a stop too."""
        self._grace_until = min(self._grace_until, until)

    def grace_left(self) -> float:
        return max(0.0, self._grace_until - self._clock())

    def give_up(self) -> list[HeldDelivery]:
        """Abandon running handlers and kill child processes. Return the deliveries that the caller must settle.

        A delivery beyond its timeout is settled as failed here.
        """
        given_up: list[HeldDelivery] = []
        for held in list(self.running):
            if held.timed_out:
                self._expire(held)
            elif self.running.pop(held, None) is not None:
                held.give_up()
                given_up.extend(held.batch)
            self._children.kill(held)
        return given_up

    @abstractmethod
    async def wait(self) -> None:
        """Wait for running handlers until the grace period ends."""

    @abstractmethod
    async def clean_up(self) -> None:
        """Give abandoned handlers a moment to clean up."""

    @abstractmethod
    def calls_this(self) -> bool: ...

    @abstractmethod
    def begin(self) -> None:
        """Begin deliveries that were added to the buffer."""

    def free(self) -> int:
        return self._concurrency - len(self.occupied)

    def busy(self, now: float) -> float:
        """Return for how many seconds no handler has been free; zero if one is."""
        started = list(self.occupied.values())
        return now - max(started) if len(started) >= self._concurrency else 0.0

    def is_closed(self) -> bool:
        """Return whether the executor can call no more handlers, although the worker was not stopped."""
        return False

    def interrupt(self, deliveries: list[HeldDelivery]) -> None:
        """Interrupt the handlers of lost or cancelled deliveries, except in threads, which cannot be interrupted."""
        for held in deliveries:
            self._children.kill(held.first)
        if any(held.cancelled for held in deliveries):
            self._time_limits.wake_by(self._clock() + self._timings.ignored_cancel)

    def _begin_handling(self, held: HeldDelivery) -> Handler:
        """Begin a batch and return its handler, or raise NotCalled. Settle later messages that cannot be handled."""
        followers, held.followers = held.followers, []
        try:
            handler = begin_handling(held, self._options)
        except BaseException:
            # Only the first message is affected; the others are delivered again without it.
            for follower in followers:
                self._settle(follower, without_call(follower) or RELEASE)
            raise
        for follower in followers:
            try:
                begin_handling(follower, self._options)
                held.followers.append(follower)
            except BaseException as error:  # noqa: BLE001 - it is about its message alone
                # This message has no share in the cost of the call.
                follower.first = follower
                self._settle(follower, decide_on_failure(follower, error, self._options))
        return handler

    def _limit_time(self, held: HeldDelivery, handler: Handler) -> None:
        if handler.timeout is not None:
            held.limit_time(handler.timeout)
            assert held.time_over_at is not None  # noqa: S101 - it has just been set
            self._time_limits.wake_by(held.time_over_at + self._clean_up)

    def _call_plain(self, held: HeldDelivery, handler: Handler) -> Any:
        with self._fork_guard:
            return bound_call(handler, held)()

    def _call_in_session(self, held: HeldDelivery, handler: Handler) -> Decisions:
        options = self._options
        sessions = options.session_factory if handler.asynchronous else options.sync_session_factory
        assert sessions is not None  # noqa: S101 - the worker has checked it
        return call_in_session(sessions, held, handler, self._fork_guard, self._decisions)

    def _call_in_child(self, held: HeldDelivery, handler: Handler) -> Decisions:
        call = bound_call(handler, held, function=lambda *_, **__: self._children.call(held, handler))
        return self._decisions(held, handler, call())

    def _decisions(self, held: HeldDelivery, handler: Handler, result: object) -> list[Decision]:
        values = [result] if handler.batch is None else results_of_batch(result, len(held.batch))
        return [self._decide(one, handler, result, value) for one, value in zip(held.batch, values, strict=True)]

    def _decide(self, held: HeldDelivery, handler: Handler, result: object, value: object) -> Decision:
        policy = held.queue.policy(handler, self._options.retry)
        outcome = held.first.outcomes.get(held.delivery.message_id)
        if outcome is not None:
            return of_error(outcome, held.delivery, policy)
        decision = of_return(result, held.delivery, policy)
        if not held.delivery.keeps_result or decision is not COMPLETE:
            return decision
        kept = encoded_result(held.queue.queue.codec, handler.schema, value)
        if kept.problem is not None:
            what = f"is completed, and what its handler returned is not kept: {kept.problem}"
            self._log.message(logging.WARNING, held.delivery, what)
        return Decision(Verb.COMPLETE, result=kept)

    def _failed(self, held: HeldDelivery, error: BaseException) -> Decisions:
        if isinstance(error, HandlerTimeout) and not self._is_first_to_tell(held):
            return [None]
        if held.followers and any(one.cancelled for one in held.batch):
            # The others in the batch have not failed.
            return [COMPLETE if one.cancelled else RELEASE for one in held.batch]
        return [decide_on_failure(one, error, self._options) for one in held.batch]

    def _finish(self, held: HeldDelivery, decisions: Decisions, *, still_runs: bool = False) -> None:
        """Settle a finished batch, unless it was given up; release those of its messages that have no decision.

        *still_runs* says that the handler's task was cancelled, but its thread goes on.
        """
        started = self.running.pop(held, None)
        if still_runs:
            self._hang(held)
        elif held.given_up or held.cancelled_at is not None:
            self._returned(held)
        else:
            self.occupied.pop(held, None)
        if started is None:
            return
        rest = [without_call(one) or RELEASE for one in held.batch[len(decisions) :]]
        self._settle_batch(held, [*decisions, *rest], started)
        self._refill()

    def _settle_batch(self, held: HeldDelivery, decisions: Decisions, started: float) -> None:
        costs = [one.measured_cost for one in held.batch]
        for one, cost, decision in zip(held.batch, costs, decisions, strict=True):
            one.cost = cost
            if (took := one.took) is not None:
                attempts, delivery = self._stats.attempts(one.delivery.queue), one.delivery
                attempts.add(delivery.channel, delivery.attempt, delivery.enqueued_at.timestamp(), took)
            self._settle(one, decision)
        self.prefetch.observe(self._clock() - started)

    def _refill(self) -> None:
        if len(self.buffer) <= self._trigger.refill_at:
            self._trigger.set()

    def _check_time(self) -> float:
        """Fail handlers beyond their timeout; count those that ignore a cancel. Return seconds until the next check."""
        began = self._clock()
        next_at = math.inf
        for held in list(self.running):
            # Nothing to do for a child process, which the waiting thread kills.
            if held in self._children:
                continue
            for since, allowed, act in (
                (held.time_over_at, self._clean_up, self._expire),
                (held.cancelled_at, self._timings.ignored_cancel, self._ignore),
            ):
                if since is None:
                    continue
                if since + allowed <= self._clock():
                    act(held)
                else:
                    next_at = min(next_at, since + allowed)
        return next_at - began

    def _ignore(self, held: HeldDelivery) -> None:
        """Count a handler that runs on after its message was cancelled as hanging. It may still settle the message."""
        ago = self._clock() - (held.cancelled_at or 0.0)
        self._hang(
            held,
            f"was cancelled {ago:.0f} s ago, and its handler still runs without asking context.check() "
            f"('fairqueue workers stop {shlex.quote(self._options.name)} {held.queue.reference}' stops its worker)",
        )

    def _expire(self, held: HeldDelivery) -> None:
        """Settle a delivery as failed, since its handler still runs after its timeout."""
        with self._lock:
            started = None if held.given_up else self.running.pop(held, None)
            if started is None:
                return
            held.give_up()
        self._stats.time_is_over(len(held.batch))
        error = HandlerTimeout(held.delivery.message_id, held.delivery.kind, held.timeout)
        decisions = [decide_on_failure(one, error, self._options) for one in held.batch]
        self._hang(held)
        self._settle_batch(held, decisions, started)

    def _is_first_to_tell(self, held: HeldDelivery) -> bool:
        """Count a timeout that the handler reports, and return True; False if the delivery is already given up."""
        with self._lock:
            if held.given_up:
                return False
            held.give_up()
        self._stats.time_is_over(len(held.batch))
        return True

    def _hang(
        self, held: HeldDelivery, what: str = "is settled while its handler still runs, which cannot be interrupted"
    ) -> None:
        """Count a handler as hanging, unless it has just returned."""
        with self._lock:
            if held not in self.occupied or held in self._hung:
                return
            self._hung.add(held)
            hung = self._stats.hang(1)
        level, so = logging.WARNING, ""
        if hung >= self._concurrency:
            level, so = logging.ERROR, "; the worker takes no messages until one returns: restart its process"
        self._log.message(
            level,
            held.delivery,
            f"{what}: {hung} of {self._concurrency} handlers hang{so}",
        )

    def _returned(self, held: HeldDelivery) -> None:
        """Note the return of a handler that may be counted as hanging."""
        with self._lock:
            since = self.occupied.pop(held, None)
            held.returned()
            if since is None or held not in self._hung:
                return
            self._hung.discard(held)
            hung = self._stats.hang(-1)
        self._log.message(
            logging.WARNING,
            held.delivery,
            f"no longer hangs: its handler has returned after {self._clock() - since:.1f} s"
            f"{', which settles nothing' if held.given_up else ''}; {hung} of {self._concurrency} handlers hang",
        )
        self._refill()


class ThreadExecutor(Executor):
    """An executor with daemon threads, so that a handler that never returns does not keep the process alive."""

    def __init__(
        self, options: WorkerOptions, stats: WorkerStats, trigger: FetchTrigger, settle: SettleCallback
    ) -> None:
        super().__init__(options, stats, trigger, settle)
        self._changed = threading.Condition()
        self._idle = 0
        # Until when a stop waits for hanging handlers.
        self._leave_at = math.inf
        self._threads = [
            threading.Thread(target=self._run, name=f"{options.name}-handler-{number}", daemon=True)
            for number in range(1, options.concurrency + 1)
        ]

    def start(self) -> None:
        super().start()
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        if self._idle:
            with self._changed:
                self._changed.notify(len(self.buffer))

    def calls_this(self) -> bool:
        return threading.current_thread() in self._threads

    def begin_stop(self) -> None:
        super().begin_stop()
        with self._changed:
            self._changed.notify_all()

    async def wait(self) -> None:
        """Wait for running handlers until the grace period ends; hung threads get a short extra wait."""
        for thread in self._threads:
            join(thread, self._left)

    async def clean_up(self) -> None:
        """Do nothing, since nothing can interrupt a thread."""

    def _left(self) -> float:
        if self.running:
            self._leave_at = math.inf
            return self.grace_left()
        now = self._clock()
        self._leave_at = min(self._leave_at, now + self._timings.cleanup)
        return min(self.grace_left(), self._leave_at - now)

    def _run(self) -> None:
        while not self._stopping.is_set():
            held = self.buffer.pop()
            if held is None:
                self._wait_for_work()
                continue
            self.occupied[held] = self.running[held] = self._clock()
            # Asked after the handler was noted: either this line sees a stop, or the stop waits for this handler.
            is_stopping = self._stopping.is_set()
            # In a new context, so that context variables of a handler do not leak into the next message.
            self._finish(held, [RELEASE] if is_stopping else copy_context().run(self._call, held))

    def _wait_for_work(self) -> None:
        with self._changed:
            self._idle += 1
            while not self.buffer and not self._stopping.is_set():
                self._changed.wait()
            self._idle -= 1

    def _call(self, held: HeldDelivery) -> Decisions:
        try:
            handler = self._begin_handling(held)
            if handler.isolated:
                return self._call_in_child(held, handler)
            self._limit_time(held, handler)
            if handler.session:
                return self._call_in_session(held, handler)
            result = self._call_plain(held, handler)
            if handler.timeout is not None:
                held.check_time()
            # A shortcut: the general way takes a tenth of a message's time.
            if result is None and handler.batch is None and not held.outcomes:
                return _DONE
            return self._decisions(held, handler, result)
        except BaseException as error:  # noqa: BLE001 - every exception of a handler is about its message
            return self._failed(held, error)
