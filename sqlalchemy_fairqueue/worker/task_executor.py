"""Tasks of an event loop that call handlers: one a delivery, so that nothing of one message is left for the next."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import HandlerTimeout, LeaseLost
from sqlalchemy_fairqueue.unit_of_work import guard
from sqlalchemy_fairqueue.worker.daemon_threads import in_thread
from sqlalchemy_fairqueue.worker.decisions import COMPLETE, RELEASE, Decision, is_serialization_failure, of_return
from sqlalchemy_fairqueue.worker.executor import Executor
from sqlalchemy_fairqueue.worker.handler_calls import TRIES, begin, check_time, commit_with, extras, failed
from sqlalchemy_fairqueue.worker.prefetch import STALE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.asynchronous import AsyncSession
    from sqlalchemy_fairqueue.queue.handling import Handler
    from sqlalchemy_fairqueue.values import RetryPolicy
    from sqlalchemy_fairqueue.worker.context import Context
    from sqlalchemy_fairqueue.worker.prefetch import Prefetch

# How long a cancelled handler may clean up after the grace period.
_CLEANING = 1.0
_LOOK = 1.0
# How often a delivery is given back uncounted because its task was cancelled: a handler that cancels itself has an end.
_CANCELLATIONS = 10

# Whose handler runs, also in the tasks and threads that it starts.
_mine: ContextVar[TaskExecutor | None] = ContextVar("fairqueue_crew", default=None)


class TaskExecutor(Executor):
    """Tasks in the loop that it was made in.

    The fetcher puts deliveries into the buffer from its thread; all else happens in the loop.
    """

    def __init__(
        self, concurrency: int, pace: Prefetch, retry: RetryPolicy, sessions: Callable[[], AsyncSession], name: str
    ) -> None:
        super().__init__(concurrency, pace)
        self._loop = asyncio.get_running_loop()
        self._retry = retry
        self._sessions = sessions
        self._name = name
        self._tasks: dict[Context, asyncio.Task[Decision | None]] = {}
        # Whose tasks were cancelled: not again and again, so that they can clean up.
        self._told: set[Context] = set()
        self._patience: asyncio.Timeout | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._stopping = False
        # Since when the loop has not come to look at the buffer.
        self._called_at: float | None = None

    def start(self) -> None:
        """There is work in the buffer. Called by the fetcher's thread."""
        if self._called_at is None:
            # Not now: what is given back because it has waited too long has waited for the loop for as long.
            self._called_at = self.buffer.filled_at
        self._call_in_loop(self._begin)

    def tell(self, contexts: list[Context]) -> None:
        """Cancel the handlers of these deliveries. Called by the heartbeat's thread."""
        self._call_in_loop(self._cancel, contexts)

    def free(self) -> int:
        """How many could start at once: none in a loop that is blocked, which others should not wait for."""
        called_at = self._called_at
        return 0 if called_at is not None and monotonic() - called_at > STALE else super().free()

    def gone(self) -> bool:
        """Whether the loop was closed without a stop."""
        return self._loop.is_closed()

    def is_mine(self) -> bool:
        """Whether one of its handlers asks."""
        return _mine.get() is self

    def end(self) -> None:
        """Begin no more, and tell the handlers at work."""
        self._stopping = True
        for context in self.running:
            context.stopping = True

    def hurry(self, until: float) -> None:
        """Let a stop wait no longer than *until* then, also one that is under way."""
        super().hurry(until)
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(self._loop.time() + self.left())

    async def stop(self) -> None:
        """Wait for the handlers at work, as long as there is time."""
        if self._tasks:
            try:
                async with asyncio.timeout(self.left()) as self._patience:
                    await asyncio.wait(self._tasks.values())
            except TimeoutError:
                pass
            finally:
                self._patience = None

    async def clean(self) -> None:
        """Cancel what was given up, and give it a moment to tidy up."""
        for context, task in self._tasks.items():
            self._told.add(context)
            task.cancel("the worker stops")
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=_CLEANING)
        if self._watch is not None:
            self._watch.cancel()

    def _call_in_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        # A loop that was closed under us has no handlers any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _begin(self) -> None:
        self._called_at = None
        while len(self._tasks) < self._concurrency and not self._stopping:
            context = self.buffer.pop()
            if context is None:
                return
            self.running[context] = monotonic()
            name = f"{context.delivery.kind}-{context.delivery.message_id}"
            task = self._tasks[context] = self._loop.create_task(self._call(context), name=name)
            task.add_done_callback(partial(self._done, context))
            self._watch_next(context.claim.deadline)

    def _cancel(self, contexts: list[Context]) -> None:
        for context in contexts:
            task = self._tasks.get(context)
            if task is not None and context not in self._told and (context.lost or context.cancelled):
                self._told.add(context)
                task.cancel("its message was cancelled" if context.cancelled else "its lease was lost")

    def _watch_next(self, deadline: float) -> None:
        """Look at the claims when the first may end: the loop's own timer does not depend on any thread."""
        if self._watch is None:
            wait = min(_LOOK, max(0.01, deadline - monotonic()))
            self._watch = self._loop.call_later(wait, self._look)

    def _look(self) -> None:
        self._watch = None
        self._cancel([context for context in self._tasks if context.lost])
        deadlines = [context.claim.deadline for context in self._tasks if not context.lost]
        if deadlines:
            self._watch_next(min(deadlines))

    def _done(self, context: Context, task: asyncio.Task[Decision | None]) -> None:
        del self._tasks[context]
        self._told.discard(context)
        # Cancelled before it began: it was not tried.
        untried = COMPLETE if context.cancelled else RELEASE
        self.leave(context, untried if task.cancelled() else task.result())
        self._begin()

    async def _call(self, context: Context) -> Decision | None:
        if (untried := self.untried(context)) is not None:
            return untried
        _mine.set(self)
        try:
            handler = begin(context, self._retry)
            allowed = None if handler.timeout is None else handler.timeout.total_seconds()
            scope = asyncio.timeout(allowed)
            try:
                async with scope:
                    return await self._call_handler(context, handler)
            except TimeoutError:
                if not scope.expired():
                    raise
                raise HandlerTimeout(context.delivery.message_id, context.delivery.kind) from None
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is about its message
            # A loop that was closed under it is no failure of the handler's either.
            if (isinstance(error, GeneratorExit) and self._loop.is_closed()) or (
                isinstance(error, asyncio.CancelledError) and self._is_foreign(context)
            ):
                return RELEASE
            return failed(context, self._meant(context, error), self._retry, self._name)

    def _is_foreign(self, context: Context) -> bool:
        """Whether somebody else has cancelled the task of a handler: as a rule a loop that ends."""
        task = asyncio.current_task()
        uncounted = context.delivery.deliveries - context.delivery.attempt
        return task is not None and task.cancelling() > 0 and context not in self._told and uncounted < _CANCELLATIONS

    @staticmethod
    def _meant(context: Context, error: BaseException) -> BaseException:
        """A cancellation that we asked for, by its reason."""
        if isinstance(error, asyncio.CancelledError) and context.lost:
            lease = context.delivery.lease
            return LeaseLost((context.delivery.message_id,), lease.id, lease.expires_at)
        return error

    async def _call_handler(self, context: Context, handler: Handler) -> Decision:
        if handler.session:
            return await self._call_in_session(context, handler)
        if handler.asynchronous:
            with self.one_process:
                result = await handler.function(context.delivery, **extras(handler, context))
        else:
            result = await in_thread(lambda: self._call_plain(context, handler))
        # A plain function around a coroutine.
        if inspect.isawaitable(result):
            with self.one_process:
                result = await result
        check_time(context)
        return self._returned(context, handler, result)

    def _call_plain(self, context: Context, handler: Handler) -> Any:
        with self.one_process:
            return handler.function(context.delivery, **extras(handler, context))

    async def _call_in_session(self, context: Context, handler: Handler) -> Decision:
        for left in reversed(range(TRIES)):
            session = self._sessions()
            try:
                guard(session.sync_session, context.check)
                with self.one_process:
                    result = await handler.function(context.delivery, **extras(handler, context, session))
                decision = commit_with(session.sync_session, context, self._returned(context, handler, result))
                await session.commit()
            except Exception as error:
                if not left or context.lost or not is_serialization_failure(error):
                    raise
            else:
                return decision
            finally:
                guard(session.sync_session, None)
                # A cancelled commit must not leave its connection behind.
                await asyncio.shield(session.close())
        raise AssertionError  # the last try returns or raises

    def _returned(self, context: Context, handler: Handler, result: Any) -> Decision:
        return of_return(result, context.delivery, context.source.policy(handler, self._retry))
