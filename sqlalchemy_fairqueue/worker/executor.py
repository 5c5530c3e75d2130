"""Executors call the handlers of one worker, in threads or as tasks of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import threading
from abc import ABC, abstractmethod
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.util import greenlet_spawn

from sqlalchemy_fairqueue.errors import FairQueueError, HandlerTimeout
from sqlalchemy_fairqueue.queue.contexts import finished
from sqlalchemy_fairqueue.worker import handling
from sqlalchemy_fairqueue.worker.child_processes import ChildProcesses
from sqlalchemy_fairqueue.worker.leases import COMPLETE, LOST, RELEASE, Buffer, Decision, HeldDelivery
from sqlalchemy_fairqueue.worker.threads import Duty, ForkGuard, Looper, in_thread, join
from sqlalchemy_fairqueue.worker.timings import Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.wakeups import FetchTrigger

    SettleCallback = Callable[[HeldDelivery, Decision], None]

T = TypeVar("T")
_DONE = (COMPLETE,)


class Executor(ABC):
    """Calls the handlers of one worker, and passes each finished delivery with its decision to *settle*.

    A handler that exceeds its timeout has failed, whether it returns or not. If nothing can interrupt it, it *hangs*:
    it counts towards the concurrency until it returns, so that a worker never runs more handlers than configured.

    Attributes:
        running: Deliveries whose handlers run, and since when. The thread that removes a delivery settles it.
        occupied: Deliveries whose handlers run or hang, and since when.
    """

    def __init__(self, options: WorkerOptions, trigger: FetchTrigger, settle: SettleCallback) -> None:
        self.prefetch: Prefetch = Prefetch(options.concurrency, options.timings, options.prefetch)
        self.buffer: Buffer = Buffer()
        self.running: dict[HeldDelivery, float] = {}
        self.occupied: dict[HeldDelivery, float] = {}
        self._options = options
        self.trigger: FetchTrigger = trigger
        self._settle = settle
        self._fork_guard = ForkGuard()
        self._children = ChildProcesses(options)
        # Time limits have a thread of their own, since Python threads cannot be interrupted, a blocked event loop runs
        # no timer, and the heartbeat waits for the database. Most handlers return long before their limit, so there is
        # no list of limits; the thread looks through the running handlers when the first limit may be over.
        duty = Duty("check the time of its handlers", self._check_time, self._options.timings.longest_sleep)
        self._time_limits = Looper("limits", [duty], options)
        # Seconds between the end of a handler's timeout and its failure, so that a cancelled handler can clean up.
        self._clean_up = 0.0
        self._hung: set[HeldDelivery] = set()
        # Held to change which handlers count as hanging, and to give up a delivery whose timeout is over.
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._grace_until = math.inf

    def start(self) -> None:
        self._time_limits.start()

    def close(self) -> None:
        self._time_limits.end(self._options.timings.leave_thread)
        self._children.close()

    def begin_stop(self) -> None:
        self._stopping.set()
        for held in list(self.running):
            held.stopping = True

    def shorten_grace(self, until: float) -> None:
        self._grace_until = min(self._grace_until, until)

    def grace_left(self) -> float:
        return max(0.0, self._grace_until - self._options.clock())

    def give_up(self) -> list[HeldDelivery]:
        """Take deliveries from running handlers, and return those that the caller must release.

        Deliveries whose timeout is over fail instead. Child processes are killed. Handlers' sessions refuse commits.
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

    async def run(self, work: Callable[[], Any]) -> Any:
        """Call a function that may block; :class:`TaskExecutor` calls it in a thread, so that its loop goes on."""
        return work()

    @abstractmethod
    async def wait(self) -> None:
        """Wait for running handlers until the grace period ends."""

    async def clean_up(self) -> None:  # noqa: B027 - nothing can interrupt a thread
        """Cancel tasks of handlers that still run, and give them a moment to clean up. In threads, do nothing."""

    @abstractmethod
    def calls_this(self) -> bool: ...

    @abstractmethod
    def begin(self) -> None:
        """Begin deliveries that were added to the buffer. The fetcher's thread calls it."""

    def free(self) -> int:
        return self._options.concurrency - len(self.occupied)

    def busy(self, now: float) -> float:
        """Return for how many seconds no handler has been free; zero if one is free."""
        started = list(self.occupied.values())
        return now - max(started) if len(started) >= self._options.concurrency else 0.0

    def is_closed(self) -> bool:
        """Return whether the executor can call no more handlers, although the worker was not stopped."""
        return False

    def interrupt(self, deliveries: list[HeldDelivery]) -> None:
        """Interrupt the handlers of lost or cancelled deliveries. The heartbeat's thread calls it."""
        for held in {one.first for one in deliveries}:
            self._interrupt(held)
        self._time_limits.wake_by(self._options.clock() + self._options.timings.ignored_cancel)

    def _interrupt(self, held: HeldDelivery) -> None:
        """Interrupt a handler that must not go on, except in a thread, which cannot be interrupted."""
        self._children.kill(held)

    def _begin_handling(self, held: HeldDelivery) -> Handler:
        """Begin a batch, whose first delivery is *held*, and return its handler.

        If *held* cannot be handled, release the other deliveries and raise an error, for example NotCalled; the caller
        settles *held*. If another delivery cannot be handled, settle it and remove it from the batch.
        """
        followers, held.followers = held.followers, []
        try:
            handler = handling.begin_handling(held)
        except BaseException:
            # Only the first message is affected; the others are delivered again without it.
            for follower in followers:
                self._settle(follower, RELEASE)
            raise
        for follower in followers:
            try:
                handling.begin_handling(follower)
                held.followers.append(follower)
            except BaseException as error:  # noqa: BLE001 - it is about its message alone
                # This message has no share in the cost of the call.
                follower.first = follower
                self._settle(follower, handling.decide_on_failure(follower, error))
        return handler

    def _call_plain(self, held: HeldDelivery, handler: Handler) -> Any:
        with self._fork_guard:
            return handling.bound_call(handler, held)()

    def _call_in_child(self, held: HeldDelivery, handler: Handler) -> handling.Decisions:
        call = handling.bound_call(handler, held, function=lambda *_, **__: self._children.call(held, handler))
        return handling.decide_on_return(held, handler, call())

    def _failed(self, held: HeldDelivery, error: BaseException) -> handling.Decisions:
        if isinstance(error, HandlerTimeout):
            self._expire(held, error)
            return [LOST]
        if held.followers and any(one.cancelled for one in held.batch):
            # The others in the batch have not failed.
            return [RELEASE for _ in held.batch]
        return [handling.decide_on_failure(one, error) for one in held.batch]

    def _finish(self, held: HeldDelivery, decisions: handling.Decisions, *, still_runs: bool = False) -> None:
        """Settle a batch when the call or task of its handler has ended, unless a time limit or a stop has settled it.

        *still_runs* says that the task was cancelled and the handler goes on in its thread: the handler hangs.
        """
        started = self.running.pop(held, None)
        if still_runs:
            self._hang(held)
        else:
            self._returned(held)
        if started is not None:
            rest = [RELEASE for _ in held.batch[len(decisions) :]]
            self._settle_batch(held, [*decisions, *rest], started)
        self._refill()

    def _settle_batch(self, held: HeldDelivery, decisions: handling.Decisions, started: float) -> None:
        costs = [one.measured_cost for one in held.batch]
        for one, cost, decision in zip(held.batch, costs, decisions, strict=True):
            one.cost = cost
            if (took := one.took) is not None:
                self._options.stats.attempts(one.delivery.queue).add(one.delivery, took)
            self._settle(one, decision)
        self.prefetch.observe(self._options.clock() - started)

    def _refill(self) -> None:
        if len(self.buffer) <= self.trigger.refill_at:
            self.trigger.set()

    def _check_time(self) -> float:
        began = self._options.clock()
        next_at = math.inf
        for held in list(self.running):
            # The thread that waits for a child process kills the child.
            if held in self._children:
                continue
            for since, allowed, act in (
                (held.time_over_at, 0.0, self._interrupt),
                (held.time_over_at, self._clean_up, self._expire),
                (held.cancelled_at, self._options.timings.ignored_cancel, self._ignore),
            ):
                at = math.inf if since is None else since + allowed
                if at <= self._options.clock():
                    act(held)
                else:
                    next_at = min(next_at, at)
        return next_at - began

    def _ignore(self, held: HeldDelivery) -> None:
        """Count a handler that ignores a cancel as hanging, but do not settle its message until the handler returns."""
        ago = self._options.clock() - (held.cancelled_at or 0.0)
        self._hang(held, f"was cancelled {ago:.0f} s ago, and its handler still runs without asking context.check()")

    def _expire(self, held: HeldDelivery, error: HandlerTimeout | None = None) -> None:
        """Settle a batch as failed by its timeout. *error* is what the handler raised; None if it still runs."""
        with self._lock:
            started = None if held.given_up else self.running.pop(held, None)
            if started is None:
                return
            held.give_up()
        self._options.stats.count("timed_out", len(held.batch))
        over = error or HandlerTimeout(held.delivery.message_id, held.delivery.kind, held.timeout)
        decisions = [handling.decide_on_failure(one, over) for one in held.batch]
        if error is None:
            self._hang(held)
        self._settle_batch(held, decisions, started)

    def _hang(
        self, held: HeldDelivery, what: str = "is settled while its handler still runs, which cannot be interrupted"
    ) -> None:
        with self._lock:
            if held not in self.occupied or held in self._hung:
                return
            self._hung.add(held)
            hung = self._options.stats.count("hung")
        level, so = logging.WARNING, ""
        if hung >= self._options.concurrency:
            level, so = logging.ERROR, "; the worker takes no messages until one returns: restart its process"
        held.log(level, f"{what}: {hung} of {self._options.concurrency} handlers hang{so}")

    def _returned(self, held: HeldDelivery) -> None:
        with self._lock:
            since = self.occupied.pop(held, None)
            if since is None or held not in self._hung:
                return
            self._hung.discard(held)
            hung = self._options.stats.count("hung", -1)
        what = f"no longer hangs: its handler has returned after {self._options.clock() - since:.1f} s"
        so = ", which settles nothing" if held.given_up else ""
        held.log(logging.WARNING, f"{what}{so}; {hung} of {self._options.concurrency} handlers hang")


class ThreadExecutor(Executor):
    """An executor with daemon threads, so that a handler that never returns does not keep the process alive."""

    def __init__(self, options: WorkerOptions, trigger: FetchTrigger, settle: SettleCallback) -> None:
        super().__init__(options, trigger, settle)
        self._changed = threading.Condition()
        self._idle = 0
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
        for thread in self._threads:
            join(thread, lambda: self.grace_left() if self.running else 0.0)
        leave_at = self._options.clock() + self._options.timings.cleanup
        for thread in self._threads:
            join(thread, lambda: min(self.grace_left(), leave_at - self._options.clock()))

    def _run(self) -> None:
        while not self._stopping.is_set():
            held = self.buffer.pop()
            if held is None:
                self._wait_for_work()
                continue
            self.occupied[held] = self.running[held] = self._options.clock()
            # The handler was noted before this line, so either this line sees a stop or the stop waits for the handler.
            is_stopping = self._stopping.is_set()
            # Each call has a new context, so that context variables of a handler do not leak into the next message.
            self._finish(held, [RELEASE] if is_stopping else copy_context().run(self._call, held))

    def _wait_for_work(self) -> None:
        with self._changed:
            self._idle += 1
            while not self.buffer and not self._stopping.is_set():
                self._changed.wait()
            self._idle -= 1

    def _call(self, held: HeldDelivery) -> handling.Decisions:
        try:
            handler = self._begin_handling(held)
            if handler.isolated:
                return self._call_in_child(held, handler)
            self._time_limits.wake_by(held.limit_time(handler.timeout))
            if handler.session:
                return handling.call_in_session(held, handler, self._fork_guard)
            result = self._call_plain(held, handler)
            if handler.timeout is not None:
                held.check_time()
            # A shortcut: the general way takes a tenth of a message's time.
            if result is None and handler.batch is None and not held.outcomes:
                return _DONE
            return handling.decide_on_return(held, handler, result)
        except BaseException as error:  # noqa: BLE001 - every exception of a handler is about its message
            return self._failed(held, error)


# If a task was cancelled from outside the worker, its message is released uncounted at most this often. Later attempts
# count, so that the message of a handler that always cancels itself becomes a dead letter in the end.
_CANCELLATIONS = 10
# The executor of the running handler, also in tasks and threads that the handler starts.
_current: ContextVar[TaskExecutor | None] = ContextVar("fairqueue_executor", default=None)


class TaskExecutor(Executor):
    """An executor with tasks of the running loop. A plain function's task awaits the thread or process that runs it."""

    def __init__(self, options: WorkerOptions, trigger: FetchTrigger, settle: SettleCallback) -> None:
        super().__init__(options, trigger, settle)
        self._clean_up = options.timings.cleanup
        self._loop = asyncio.get_running_loop()
        self._in_threads: set[HeldDelivery] = set()
        self._tasks: dict[HeldDelivery, asyncio.Task[handling.Decisions]] = {}
        # Deliveries whose tasks were cancelled. Before a stop a task is cancelled only once, so that it can clean up.
        self._interrupted: set[HeldDelivery] = set()
        # Set when a handler has finished, or the grace period is shorter; a stop waits for it.
        self._changed = asyncio.Event()
        # Since when the loop has been asked to take from the buffer, and has not done so; None if it has.
        self._called_at: float | None = None

    def begin(self) -> None:
        if self._called_at is None:
            # The time of the last dequeue, not of this call, since the dequeued deliveries have waited since then.
            self._called_at = self.buffer.filled_at
        self._call_in_loop(self._begin)

    def _interrupt(self, held: HeldDelivery) -> None:
        super()._interrupt(held)
        self._call_in_loop(self._cancel, held)

    def free(self) -> int:
        """Return how many handlers could begin; zero if the loop is blocked, so that no messages wait for the loop."""
        called_at = self._called_at
        is_blocked = called_at is not None and self._options.clock() - called_at > self._options.timings.stale_after
        return 0 if is_blocked else super().free()

    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def calls_this(self) -> bool:
        return _current.get() is self

    def shorten_grace(self, until: float) -> None:
        super().shorten_grace(until)
        self._call_in_loop(self._changed.set)

    async def run(self, work: Callable[[], Any]) -> Any:
        return await in_thread(work)

    async def wait(self) -> None:
        while self.running and (left := self.grace_left()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    async def clean_up(self) -> None:
        for held, task in self._tasks.items():
            self._interrupted.add(held)
            task.cancel("the worker stops")
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=self._options.timings.cleanup)

    def _call_in_loop(self, function: Callable[..., None], *given: Any) -> None:
        # A closed loop has no handlers.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *given)

    def _begin(self) -> None:
        self._called_at = None
        while len(self.occupied) < self._options.concurrency and not self._stopping.is_set():
            held = self.buffer.pop()
            if held is None:
                return
            self.occupied[held] = self.running[held] = self._options.clock()
            name = f"{held.delivery.kind}-{held.delivery.message_id}"
            # The context is new, since this may run in that of a handler whose thread has just ended. The loop's task
            # factory is not used, since it might begin the task before the task is noted.
            task = self._tasks[held] = asyncio.Task(self._call(held), loop=self._loop, name=name, context=Context())
            task.add_done_callback(partial(self._done, held))

    def _cancel(self, held: HeldDelivery) -> None:
        task = self._tasks.get(held)
        if task is None or held in self._interrupted:
            return
        self._interrupted.add(held)
        why = "its lease was lost" if held.lost else "its time is over"
        task.cancel("its message was cancelled" if any(one.cancelled for one in held.batch) else why)

    def _done(self, held: HeldDelivery, task: asyncio.Task[handling.Decisions]) -> None:
        del self._tasks[held]
        self._interrupted.discard(held)
        # A task that was cancelled before it began has done nothing.
        decisions = [] if task.cancelled() else task.result()
        self._finish(held, decisions, still_runs=held in self._in_threads)
        self._changed.set()
        self._begin()

    def _hang(self, held: HeldDelivery, *what: str) -> None:
        super()._hang(held, *what)
        self._call_in_loop(self._changed.set)

    async def _call(self, held: HeldDelivery) -> handling.Decisions:
        _current.set(self)
        try:
            handler = self._begin_handling(held)
            if handler.isolated:
                return await in_thread(lambda: self._call_in_child(held, handler))
            self._time_limits.wake_by(held.limit_time(handler.timeout))
            return await self._call_handler(held, handler)
        except asyncio.CancelledError as error:
            reason: BaseException = error
            try:
                held.check()
            except FairQueueError as known:
                reason = known
            decisions = [RELEASE] if self._is_cancelled_by_others(held) else self._failed(held, reason)
            # Its thread or child process may go on.
            held.give_up()
            self._children.kill(held)
            return decisions
        except BaseException as error:  # noqa: BLE001 - every exception of a handler is about its message
            # If the loop was closed, the handler has not failed.
            is_torn_down = isinstance(error, GeneratorExit) and self._loop.is_closed()
            return [RELEASE] if is_torn_down else self._failed(held, error)

    def _is_cancelled_by_others(self, held: HeldDelivery) -> bool:
        uncounted = held.delivery.deliveries - held.delivery.attempt
        was_cancelled = self._tasks[held].cancelling() > 0 and held not in self._interrupted
        return was_cancelled and uncounted < _CANCELLATIONS

    async def _call_handler(self, held: HeldDelivery, handler: Handler) -> handling.Decisions:
        if handler.session:
            in_session = partial(handling.call_in_session, held, handler, self._fork_guard)
            return await (greenlet_spawn(in_session) if handler.asynchronous else self._in_thread(held, in_session))
        with self._fork_guard:
            if handler.asynchronous:
                result = handling.bound_call(handler, held)()
            else:
                result = await self._in_thread(held, lambda: self._call_plain(held, handler))
            # A plain function may have returned a coroutine.
            if inspect.isawaitable(result):
                result = await (finished(result) if handler.asynchronous else result)
        held.check_time()
        return handling.decide_on_return(held, handler, result)

    async def _in_thread(self, held: HeldDelivery, work: Callable[[], T]) -> T:
        """Call *work* in a thread, and await it. If the task is cancelled, the thread goes on: the handler hangs."""

        def run() -> T:
            try:
                # The handler may have been cancelled before the thread began.
                held.check()
                return work()
            finally:
                # The loop hears of the end of the thread before it gets the result.
                self._call_in_loop(self._thread_has_ended, held)

        self._in_threads.add(held)
        try:
            return await in_thread(run)
        except Exception:
            # The thread has ended, or could not be started.
            self._in_threads.discard(held)
            raise

    def _thread_has_ended(self, held: HeldDelivery) -> None:
        self._in_threads.discard(held)
        if held not in self._tasks:
            self._returned(held)
            self._refill()
            self._begin()
