"""Executor with one task for each delivery in an event loop, so that messages share no task state."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from contextvars import Context, ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlalchemy_fairqueue.errors import HandlerTimeout, LeaseLost
from sqlalchemy_fairqueue.queue.contexts import finished
from sqlalchemy_fairqueue.worker.executor import Executor
from sqlalchemy_fairqueue.worker.handling import RELEASE, Decisions, bound_call
from sqlalchemy_fairqueue.worker.operating_system import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.queue.handlers import Handler
    from sqlalchemy_fairqueue.worker.executor import SettleCallback
    from sqlalchemy_fairqueue.worker.leases import HeldDelivery
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats
    from sqlalchemy_fairqueue.worker.wakeups import FetchTrigger


T = TypeVar("T")

# How often a delivery is released uncounted because its task was cancelled; a handler that cancels itself must end.
_CANCELLATIONS = 10

# The executor of the running handler, also in tasks and threads that the handler starts.
_current: ContextVar[TaskExecutor | None] = ContextVar("fairqueue_executor", default=None)


class TaskExecutor(Executor):
    """Runs tasks in the loop that it was created in; the task of a plain function waits for a thread or child process.

    The fetcher adds deliveries to the buffer in its thread; everything else happens in the loop.
    """

    def __init__(
        self, options: WorkerOptions, stats: WorkerStats, trigger: FetchTrigger, settle: SettleCallback
    ) -> None:
        super().__init__(options, stats, trigger, settle)
        # The loop's timer cancels a handler at its timeout. This longer limit is for handlers that go on all the same.
        self._clean_up = options.timings.cleanup
        self._loop = asyncio.get_running_loop()
        self._in_threads: set[HeldDelivery] = set()
        self._tasks: dict[HeldDelivery, asyncio.Task[Decisions]] = {}
        # Deliveries whose tasks were cancelled. They are cancelled once, so that they can clean up.
        self._interrupted: set[HeldDelivery] = set()
        self._waiting: asyncio.Timeout | None = None
        # Set when a handler has finished; a stop waits for it.
        self._changed = asyncio.Event()
        # When the loop was last asked to take from the buffer, and has not done so.
        self._called_at: float | None = None

    def begin(self) -> None:
        """Begin deliveries that were added to the buffer. The fetcher's thread calls it."""
        if self._called_at is None:
            # Not the present time, since the loop has not taken deliveries for as long as they have waited.
            self._called_at = self.buffer.filled_at
        self._call_in_loop(self._begin)

    def interrupt(self, deliveries: list[HeldDelivery]) -> None:
        """Cancel the tasks of these deliveries. The heartbeat's thread calls it."""
        super().interrupt(deliveries)
        self._call_in_loop(self._cancel, deliveries)

    def free(self) -> int:
        """Return how many handlers could begin; zero if the loop is blocked, so that no messages wait for the loop."""
        called_at = self._called_at
        is_blocked = called_at is not None and self._clock() - called_at > self._timings.stale_after
        return 0 if is_blocked else super().free()

    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def calls_this(self) -> bool:
        return _current.get() is self

    def shorten_grace(self, until: float) -> None:
        super().shorten_grace(until)
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(self._loop.time() + self.grace_left())

    async def wait(self) -> None:
        """Wait for running handlers until the grace period ends, but not for hanging ones."""
        try:
            async with asyncio.timeout(self.grace_left()) as self._waiting:
                while self.running:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting = None

    async def clean_up(self) -> None:
        """Cancel abandoned tasks, and give them a moment to clean up."""
        for held, task in self._tasks.items():
            self._interrupted.add(held)
            task.cancel("the worker stops")
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=self._timings.cleanup)

    def _call_in_loop(self, function: Callable[..., None], *given: Any) -> None:
        # A closed loop has no handlers.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *given)

    def _begin(self) -> None:
        self._called_at = None
        while len(self.occupied) < self._concurrency and not self._stopping.is_set():
            held = self.buffer.pop()
            if held is None:
                return
            self.occupied[held] = self.running[held] = self._clock()
            name = f"{held.delivery.kind}-{held.delivery.message_id}"
            # A hanging handler in a thread may have called this in its own context.
            task = self._tasks[held] = self._loop.create_task(self._call(held), name=name, context=Context())
            task.add_done_callback(partial(self._done, held))

    def _cancel(self, deliveries: list[HeldDelivery]) -> None:
        for held in {one.first for one in deliveries}:
            task = self._tasks.get(held)
            is_cancelled = any(one.cancelled for one in held.batch)
            if task is not None and held not in self._interrupted and (held.lost or is_cancelled):
                self._interrupted.add(held)
                task.cancel("its message was cancelled" if is_cancelled else "its lease was lost")

    def _done(self, held: HeldDelivery, task: asyncio.Task[Decisions]) -> None:
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

    async def _call(self, held: HeldDelivery) -> Decisions:
        _current.set(self)
        try:
            handler = self._begin_handling(held)
            if handler.isolated:
                return cast("Decisions", await in_thread(lambda: self._call_in_child(held, handler)))
            self._limit_time(held, handler)
            allowed = None if handler.timeout is None else handler.timeout.total_seconds()
            scope = asyncio.timeout(allowed)
            try:
                async with scope:
                    return await self._call_handler(held, handler)
            except TimeoutError:
                if not scope.expired():
                    raise
                raise HandlerTimeout(held.delivery.message_id, held.delivery.kind, handler.timeout) from None
        except BaseException as error:  # noqa: BLE001 - every exception of a handler is about its message
            # If the loop was closed, the handler has not failed either.
            if (isinstance(error, GeneratorExit) and self._loop.is_closed()) or (
                isinstance(error, asyncio.CancelledError) and self._is_cancelled_by_others(held)
            ):
                decisions: Decisions = [RELEASE]
            else:
                decisions = self._failed(held, self._with_reason(held, error))
            if isinstance(error, asyncio.CancelledError):
                # The handler's thread or child process may go on.
                held.give_up()
                self._children.kill(held)
            return decisions

    def _is_cancelled_by_others(self, held: HeldDelivery) -> bool:
        """Return whether a handler's task was cancelled from outside the worker, usually as its event loop ends."""
        task = asyncio.current_task()
        uncounted = held.delivery.deliveries - held.delivery.attempt
        return (
            task is not None
            and task.cancelling() > 0
            and held not in self._interrupted
            and not held.timed_out
            and uncounted < _CANCELLATIONS
        )

    @staticmethod
    def _with_reason(held: HeldDelivery, error: BaseException) -> BaseException:
        """Return LeaseLost for a cancel that a lost lease caused, and any other error as it is."""
        if isinstance(error, asyncio.CancelledError) and held.lost:
            lease = held.delivery.lease
            return LeaseLost((held.delivery.message_id,), lease.id, lease.expires_at)
        return error

    async def _call_handler(self, held: HeldDelivery, handler: Handler) -> Decisions:
        if handler.session and handler.asynchronous:
            # Not importable without greenlet, but then there is no AsyncSession either.
            from sqlalchemy.util import greenlet_spawn  # noqa: PLC0415

            return cast("Decisions", await greenlet_spawn(self._call_in_session, held, handler))
        if handler.session:
            return await self._in_thread(held, lambda: self._call_in_session(held, handler))
        if handler.asynchronous:
            with self._fork_guard:
                result = await finished(bound_call(handler, held)())
        else:
            result = await self._in_thread(held, lambda: self._call_plain(held, handler))
            # A plain function may return a coroutine.
            if inspect.isawaitable(result):
                with self._fork_guard:
                    result = await result
        held.check_time()
        return self._decisions(held, handler, result)

    async def _in_thread(self, held: HeldDelivery, work: Callable[[], T]) -> T:
        """Call *work* in a thread, and await it. If the task is cancelled, the thread goes on: the handler hangs."""

        def run() -> T:
            try:
                # The delivery may have been cancelled before the thread began.
                held.check()
                return work()
            finally:
                # Asked for before the loop gets the result.
                self._call_in_loop(self._thread_has_ended, held)

        self._in_threads.add(held)
        try:
            result: T = await in_thread(run)
        except Exception:
            # The thread has ended, or the system could start none.
            self._in_threads.discard(held)
            raise
        return result

    def _thread_has_ended(self, held: HeldDelivery) -> None:
        self._in_threads.discard(held)
        if held not in self._tasks:
            self._returned(held)
            self._begin()
