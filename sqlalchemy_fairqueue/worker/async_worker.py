"""The worker of asyncio programs."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Self

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine, AsyncSession
from sqlalchemy_fairqueue.database.engines import refused
from sqlalchemy_fairqueue.errors import FairQueueError, WorkerError
from sqlalchemy_fairqueue.figures.leftovers import read_leftovers
from sqlalchemy_fairqueue.queue.deliveries import MAX_BYTES
from sqlalchemy_fairqueue.queue.handlers import session_type_of
from sqlalchemy_fairqueue.texts import said
from sqlalchemy_fairqueue.values.outcomes import RetryPolicy
from sqlalchemy_fairqueue.worker.lifespan import Lifespan, LifespanKeeper
from sqlalchemy_fairqueue.worker.operating_system import in_thread, on_signal, signals_wake_loop
from sqlalchemy_fairqueue.worker.options import (
    GRACE,
    LEASE,
    MOST_PREFETCH,
    WorkerOptions,
    check_handlers,
    check_sessions,
    checked_middleware,
    worker_name,
)
from sqlalchemy_fairqueue.worker.runtime import Front, Runtime
from sqlalchemy_fairqueue.worker.tasks import TaskExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.contexts import AnyMiddleware
    from sqlalchemy_fairqueue.values.reports import Leftovers


class AsyncWorker(Front[TaskExecutor]):
    """Takes messages of one or several queues and calls their handlers in an event loop.

    What takes, completes and keeps leases alive runs in threads with connections of its own, so that a handler that
    blocks the loop harms the other handlers of the loop, and nothing else. Plain functions among the handlers are
    called in threads.

    All arguments are those of :class:`Worker`, except these four.

    Args:
        engine: An AsyncEngine.
        session_factory: Makes the AsyncSessions of async functions. Default: an async_sessionmaker of the engine, of
            the class that these annotate their ``session`` with.
        worker_engine: Makes the worker's own connections: an Engine or an AsyncEngine to the same database. Default:
            *engine*, which then must connect in any event loop. One with an ``async_creator`` that serves a single loop
            cannot.
        sync_session_factory: Makes the Sessions of plain functions that take one: ``sessionmaker(sync_engine)``, to the
            same database. No default: the worker cannot know the arguments of such an engine.

    Example:
        >>> @queue.handler
        ... async def greet(delivery: Delivery) -> None:
        ...     print("hello", delivery.channel)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> asyncio.run(AsyncWorker(async_engine, queue, concurrency=50).run(drain=True))
        hello customer-7
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *queues: Queue,
        worker_engine: Engine | AsyncEngine | None = None,
        concurrency: int = 8,
        lease: timedelta = LEASE,
        poll_interval: timedelta | None = None,
        listen: bool = True,
        grace: timedelta = GRACE,
        retry: RetryPolicy | None = None,
        session_factory: Callable[[], AsyncSession] | None = None,
        sync_session_factory: Callable[[], Session] | None = None,
        prefetch: int = MOST_PREFETCH,
        max_bytes: int = MAX_BYTES,
        name: str | None = None,
        housekeeping: bool = True,
        middleware: Sequence[AnyMiddleware] = (),
    ) -> None:
        if not isinstance(engine, AsyncEngine):
            raise refused(engine, "an AsyncEngine", "use a Worker")
        if worker_engine is not None and not isinstance(worker_engine, (Engine, AsyncEngine)):
            raise refused(worker_engine, "an Engine or an AsyncEngine as worker_engine")
        options = WorkerOptions(
            engine=worker_engine or engine,
            queues=queues,
            concurrency=concurrency,
            lease=lease,
            poll_interval=poll_interval,
            listen=listen,
            grace=grace,
            retry=retry or RetryPolicy(),
            prefetch=prefetch,
            max_bytes=max_bytes,
            name=worker_name(name),
            housekeeping=housekeeping,
            middleware=checked_middleware(middleware),
            session_factory=session_factory,
            sync_session_factory=sync_session_factory,
        )
        super().__init__(options)
        self._engine = engine
        self._stopping: asyncio.Task[None] | None = None
        # Has the resources of the last start.
        self._keeper: LifespanKeeper | None = None
        # The loop that it was started in last.
        self._loop: asyncio.AbstractEventLoop | None = None
        # Set when the start that is under way is over.
        self._starting: asyncio.Event | None = None
        # run() waits for it.
        self._stop_asked: asyncio.Event | None = None

    async def leftovers(self) -> tuple[Leftovers, ...]:
        """The messages that its queues hold now, and why they wait, as :meth:`Worker.leftovers`.

        Example:
            >>> @queue.handler
            ... async def greet(delivery: Delivery) -> None: ...
            >>> async def drain() -> int:
            ...     worker = AsyncWorker(async_engine, queue)
            ...     await worker.run(drain=True)
            ...     return len(await worker.leftovers())
            >>> asyncio.run(drain())
            0
        """
        async with self._engine.connect() as connection:
            return await connection.run_sync(read_leftovers, self._options.queues, self.name)

    async def start(self) -> None:
        """Begin to work in the running loop, and return.

        Raises:
            WorkerError: It runs already, a handler cannot be called by it, or its engine connects in this loop alone.
            InvalidArgument: A queue has no handlers.
            SchemaMismatch: A queue is not installed, or in a version that is too old.
            StartError: A function that a queue declared with ``on_start`` failed.

        Example:
            >>> @queue.handler("call")
            ... async def call(delivery: Delivery) -> None: ...
            >>> async def main() -> None:
            ...     worker = AsyncWorker(async_engine, queue, concurrency=10, name="calls-1")
            ...     await worker.start()
            ...     print(worker.name, await asyncio.to_thread(worker.health))
            ...     await worker.stop(grace=timedelta(seconds=30))
            >>> asyncio.run(main())
            calls-1 Health(alive=True, ready=True, problems=())
        """
        self._check_idle(is_busy=self._is_busy())
        self._check_handlers()
        sessions = self._options.session_factory
        if sessions is None:
            sessions = _sessions(self._engine, session_type_of(self._options.queues, AsyncSession))
        options = replace(self._options, session_factory=sessions)
        check_sessions(options, sessions, AsyncSession)
        if options.sync_session_factory is not None:
            check_sessions(options, options.sync_session_factory, Session, "sync_session_factory")
        lifespan = Lifespan(options, in_thread)
        loop = self._loop = asyncio.get_running_loop()
        stop = partial(self._stop_soon, loop)
        runtime = Runtime(options, TaskExecutor, self.stats, lifespan, stop, drain=self._draining)
        starting = self._starting = asyncio.Event()
        try:
            # Not in this thread: its connection has a loop of its own.
            try:
                await in_thread(runtime.check)
            except Exception as error:
                await self._check_loop(error)
                raise
            if not lifespan.is_empty:
                self._keeper = LifespanKeeper(lifespan, self._end_with_the_loop)
                await self._keeper.start()
            self._executor = runtime.executor
            # In the loop: no handler can begin before it is known whether all could be started.
            try:
                runtime.start()
            except BaseException:
                self._release()
                raise
            self._runtime = runtime
        finally:
            self._starting = None
            starting.set()
        self._started()

    async def stop(self, grace: timedelta | None = None) -> None:
        """Take no further messages, let handlers finish, release the rest uncounted, and return. It can start again.

        A handler of this worker cannot wait for itself: called by one, or by what it has started, this returns at once,
        and the worker stops when its handlers have finished. A caller that cancels this does not wait any more, but the
        stop goes on. A worker that is just starting is stopped when it has started. A second call with a shorter grace
        shortens that of the first. Another loop's task waits while the stop runs in the worker's loop.

        Args:
            grace: How long handlers may go on; default: the worker's. Those that are still at it then are cancelled.

        Raises:
            InvalidArgument: The grace is no duration.
        """
        seconds, clock = self._options.grace_seconds(grace), self._options.clock
        loop = self._loop
        if loop is not None and loop is not asyncio.get_running_loop() and loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.stop(grace), loop))
            return
        if self._starting is not None:
            await self._starting.wait()
        self._begin_stop(clock() + seconds)
        if self._executor is not None and self._executor.calls_this():
            return
        if self._stopping is not None:
            await asyncio.shield(self._stopping)
        if self._keeper is not None:
            await self._keeper.wait()

    def _begin_stop(self, until: float) -> bool:
        """Begin to stop, or let a stop that is under way wait no longer than that. False: nothing is to be stopped."""
        if self._runtime is not None and not self._runtime.executor.is_closed():
            runtime, self._runtime = self._runtime, None
            runtime.executor.shorten_grace(until)
            self._stopping = asyncio.get_running_loop().create_task(self._stop(runtime))
        elif self._stopping is not None and self._executor is not None:
            self._executor.shorten_grace(until)
        return self._stopping is not None

    def _stop_soon(self, loop: asyncio.AbstractEventLoop, runtime: Runtime[TaskExecutor]) -> None:
        """Stop this runtime, from one of its threads. A loop that is closed has ended it."""
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._stop_if_running, runtime)

    def _stop_if_running(self, runtime: Runtime[TaskExecutor]) -> None:
        if self._runtime is runtime:
            self._begin_stop(self._options.clock() + self._options.grace_seconds(None))

    def _end_with_the_loop(self) -> bool:
        """The loop cancels all of its tasks. Begin a stop without grace; False: there is nothing to stop."""
        return self._begin_stop(self._options.clock())

    def _release(self) -> None:
        """Let the resources go."""
        if self._keeper is not None:
            self._keeper.release()

    async def _stop(self, runtime: Runtime[TaskExecutor]) -> None:
        try:
            await runtime.end(in_thread)
        finally:
            self._stopping = None
            self._release()
            if self._stop_asked is not None:
                self._stop_asked.set()
        self._stopped()

    async def run(self, *, handle_signals: bool = False, drain: bool = False) -> None:
        """Work until ``stop`` is called, by a signal, or until this is cancelled, which stops it without grace.

        Args:
            drain: Whether to return as soon as nothing is left that could be delivered now, as for a Worker;
                ``leftovers`` tells what is left.
            handle_signals: Whether SIGTERM and SIGINT stop it; a second one ends the process at once, unless it comes
                within two seconds of the first. Only in the main thread. Default: signals are the program's business.

        Raises:
            InvalidArgument: Signals are to be handled in another thread. Further as ``start``.
        """
        self._check_idle(is_busy=self._is_busy())
        asked = self._stop_asked = asyncio.Event()
        self._draining = drain
        try:
            with contextlib.ExitStack() as signals:
                if handle_signals:
                    loop = asyncio.get_running_loop()
                    stop = partial(loop.call_soon_threadsafe, asked.set)
                    signals.enter_context(on_signal(stop, *self._options.signals))
                    signals.enter_context(signals_wake_loop(loop))
                try:
                    if handle_signals and not await self._start_unless(asked):
                        return
                    if not handle_signals:
                        await self.start()
                    if drain:
                        await self._drain(asked)
                    else:
                        await asked.wait()
                    await self.stop()
                except asyncio.CancelledError:
                    await self.stop(timedelta())
                    raise
        finally:
            self._stop_asked = None
            self._draining = False

    async def _start_unless(self, asked: asyncio.Event) -> bool:
        """Start; False: it was asked to stop while it looked at the schemas, and has not started."""
        starting, stopping = asyncio.create_task(self.start()), asyncio.create_task(asked.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                return True
            starting.cancel()
            await asyncio.wait({starting})
            self._options.log.info("was stopped before it had started")
            return False
        finally:
            starting.cancel()
            stopping.cancel()

    async def _drain(self, asked: asyncio.Event) -> None:
        """Wait until nothing is left to deliver, or for a stop."""
        while self._runtime is not None and not self._runtime.is_drained():
            # wait_for() of Python 3.11 loses a cancellation that comes with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.timings.drain_check):
                    await asked.wait()
                    return

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _check_loop(self, error: Exception) -> None:
        """Raise another error if the engine that could not connect in a loop of the worker's can in this one."""
        if isinstance(error, FairQueueError) or self._options.engine is not self._engine:
            return
        try:
            async with asyncio.timeout(self._options.timings.connect), self._engine.connect():
                pass
        except Exception:  # noqa: BLE001 - it has nothing to do with loops
            return
        raise WorkerError(
            f"worker {self.name} cannot make its own connections, in event loops of its own, and its engine can "
            f"connect in this loop ({type(error).__name__}: {said(error)}); if the engine's async_creator serves one "
            "loop, give AsyncWorker(worker_engine=...), an Engine or AsyncEngine that connects in any"
        ) from error

    def _is_busy(self) -> bool:
        is_running = self._runtime is not None and not self._runtime.executor.is_closed()
        is_kept = self._keeper is not None and not self._keeper.is_done()
        return self._starting is not None or is_running or self._stopping is not None or is_kept

    def _check_handlers(self) -> None:
        check_handlers(self._options)
        takers = self._options.session_handlers(asynchronous=False)
        if takers and self._options.sync_session_factory is None:
            raise WorkerError(
                f"the handler of kind {takers[0].kind!r} is a plain function that takes a session, and this worker has "
                "AsyncSessions; make it async, or give AsyncWorker(sync_session_factory=sessionmaker(engine)), with a "
                "sync engine to the same database"
            )


def _sessions(engine: AsyncEngine, session_type: type[AsyncSession]) -> Callable[[], AsyncSession]:
    # Not importable without greenlet, but then there is no AsyncEngine either.
    from sqlalchemy.ext.asyncio import async_sessionmaker  # noqa: PLC0415

    return async_sessionmaker(engine, class_=session_type)
