"""The two workers: ``Worker`` for threads, ``AsyncWorker`` for an event loop. Both use the same runtime."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

from sqlalchemy import Engine

from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.engines import refused
from sqlalchemy_fairqueue.errors import FairQueueError, WorkerError
from sqlalchemy_fairqueue.figures.leftovers import read_leftovers
from sqlalchemy_fairqueue.texts import said
from sqlalchemy_fairqueue.values.checks import check_duration
from sqlalchemy_fairqueue.worker.executor import TaskExecutor, ThreadExecutor
from sqlalchemy_fairqueue.worker.options import WorkerOptions, ready_options, worker_options
from sqlalchemy_fairqueue.worker.runtime import Health, Runtime, at_once
from sqlalchemy_fairqueue.worker.threads import WakeEvent, on_signal, signals_wake_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.database.asynchronous import AsyncSession
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.values.reports import Leftovers
    from sqlalchemy_fairqueue.worker.executor import Executor
    from sqlalchemy_fairqueue.worker.options import WorkerArguments
    from sqlalchemy_fairqueue.worker.telemetry import WorkerStats


class Front:
    """What both workers have in common. Each start makes a new Runtime, so that a stopped worker can start again."""

    def __init__(self, engine: Engine | AsyncEngine, options: WorkerOptions) -> None:
        self._engine = engine
        self._options = options
        self._runtime: Runtime | None = None
        # The executor of the last start, which may still be stopping.
        self._executor: Executor | None = None
        # Set when the worker is asked to stop.
        self._asked: WakeEvent | asyncio.Event = WakeEvent()
        # True while only checks and on_start functions run; a signal ends them at once.
        self._checking = False
        self.stats: WorkerStats = options.stats

    @property
    def name(self) -> str:
        """The worker's name, which stands beside its leases and in the log."""
        return self._options.name

    def health(self) -> Health:
        """Return whether the worker is alive and ready, for probes.

        A started worker asks its database, so the call may take a few seconds. A worker that cannot reach its database
        is alive and not ready. In an event loop, use ``await asyncio.to_thread(worker.health)``: a direct call there
        blocks the loop or, if the worker connects by an AsyncEngine, raises WorkerError.

        See Also:
            :class:`~sqlalchemy_fairqueue.reports.Health`
        """
        runtime = self._runtime
        if runtime is not None:
            return runtime.health()
        is_new = self._executor is None or self._checking
        problem = "it is not started" if is_new else "it stops, or has stopped"
        return Health(alive=True, ready=False, problems=(problem,))

    def _make_runtime(self, executor: type[Executor], stop: Callable[[Runtime], None], *, drain: bool) -> Runtime:
        runtime = Runtime(replace(ready_options(self._options, self._engine), drain=drain), executor, stop)
        self._executor = runtime.executor
        return runtime

    async def _begin(self, runtime: Runtime) -> None:
        self._checking = True
        try:
            await self._check(runtime)
            await runtime.lifespan.start()
            self._checking = False
            # Called in the event loop if there is one, so that no handler can begin before all parts have started.
            runtime.start()
        except BaseException:
            await runtime.lifespan.stop()
            raise
        finally:
            self._checking = False
        self._runtime = runtime
        self._options.log.info("started on %s", [queue.name for queue in self._options.queues])

    async def _check(self, runtime: Runtime) -> None:
        await runtime.executor.run(runtime.check)

    def _ask(self, until: float) -> None:
        if self._executor is not None:
            self._executor.shorten_grace(until)
        self._asked.set()

    async def _end(self, runtime: Runtime) -> None:
        self._runtime = None
        try:
            await runtime.end()
        finally:
            await runtime.lifespan.stop()
        self._options.log.info("stopped: %s", self.stats.as_dict())

    def _until(self, grace: timedelta | None = None) -> float:
        checked = self._options.grace if grace is None else check_duration("grace", grace)
        return self._options.clock() + checked.total_seconds()

    def _is_busy(self) -> bool:
        return self._runtime is not None

    def _check_idle(self) -> None:
        if self._is_busy():
            raise WorkerError(f"worker {self.name} runs already; stop it first, or make another")


class _StoppedAtStart(BaseException):
    """A signal came before the worker had begun. A BaseException, so that no error handler catches it."""


class Worker(Front):
    """Takes messages of one or several queues and calls their handlers in threads.

    The worker holds three connections, and a fourth once :meth:`health` was called. Its chores open others for a short
    time. Sessions of handlers use further connections. All workers of the process share a connection that listens.
    :doc:`/workers` lists its guarantees and the duties of handlers. An argument that is None has its default.

    Args:
        queues: The queues, served in turn. They must have handlers: ``@queue.handler("parse")``.
        concurrency: How many handlers run at a time.
        lease: The longest time that messages stay with this worker after its last sign of life, by default 30 seconds.
            Messages of a worker that crashed, or is cut off from the database, come back after this time at the latest.
        poll_interval: Longest time between polls of an idle queue. Default: 5 seconds, or 1 without notifications.
        listen: Whether notifications wake the worker. Give False behind a transaction pooler.
        grace: How long handlers may go on after ``stop``; then their messages are released.
        retry: When failed messages are tried again, unless their handler has its own policy.
        session_factory: Creates the sessions of handlers. Default: a sessionmaker of the engine, with the class that
            handlers annotate ``session`` with, such as SQLModel's Session.
        prefetch: The most messages that the worker takes before handlers are free for them, 0 to 500. The worker takes
            fewer if the handlers would need more than a tenth of a second for these messages.
        max_bytes: The most bytes of messages that are taken and not begun. The message that is taken last may exceed
            this bound. Default: 64 MiB.
        name: Shown beside its leases and in the log. Default: host, process and a random part.
        housekeeping: Whether it does all four chores (schedules, groups, samples and housekeeping) or none of them.
        middleware: Functions around each call of a handler, outermost first, outside of ``Queue.middleware``.

    Example:
        >>> @queue.handler
        ... def greet(delivery: Delivery) -> None:
        ...     print("hello", delivery.channel)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> Worker(engine, queue, concurrency=8).run(drain=True)
        hello customer-7
    """

    def __init__(
        self,
        engine: Engine,
        *queues: Queue,
        session_factory: Callable[[], Session] | None = None,
        **options: Unpack[WorkerArguments],
    ) -> None:
        if not isinstance(engine, Engine):
            raise refused(engine, "an Engine", "use an AsyncWorker")
        checked = worker_options(options, engine=engine, queues=queues, sync_session_factory=session_factory)
        super().__init__(engine, checked)
        self._engine: Engine
        # Reentrant, since a signal handler of the application may call stop() in a thread that is within start() or
        # stop(). So is _asked.
        self._lock = threading.RLock()
        self._asked: WakeEvent

    def leftovers(self) -> tuple[Leftovers, ...]:
        """Return how many messages the worker's queues hold now, and why: what ``run(drain=True)`` has left.

        The call uses a connection of the engine, whose role needs the grant "monitor" or "operator". A queue of 1,000
        busy channels takes some tens of milliseconds. The result has an entry for each queue that holds messages.

        Raises:
            NotGranted: The role has these grants only for other queues, or only for some channels.
            DBAPIError: The role has neither grant.

        Example:
            >>> @queue.handler
            ... def greet(delivery: Delivery) -> None: ...
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(hours=1))
            >>> worker = Worker(engine, queue)
            >>> worker.run(drain=True)
            >>> print(*worker.leftovers())
            left in queue documents...: 1 scheduled
              scheduled: 1 in 1 channel
        """
        with self._engine.connect() as connection:
            return read_leftovers(connection, self._options.queues, self.name)

    def start(self) -> None:
        """Begin to work in new threads, and return.

        Raises:
            WorkerError: The worker runs already, or has a function that it cannot call, such as an async handler.
            InvalidArgument: A queue has no handlers, or the session factory creates no Session.
            SchemaMismatch: A queue is not installed, or in a version that is too old.
            StartError: An ``on_start`` function failed.

        Example:
            >>> @queue.handler("call")
            ... def call(delivery: Delivery) -> None: ...
            >>> worker = Worker(engine, queue, concurrency=1, name="calls-1")
            >>> worker.start()
            >>> worker.name
            'calls-1'
            >>> worker.stop(grace=timedelta(seconds=30))
        """
        with self._lock:
            self._renew()
            self._start(drain=False)
            if self._asked.wait(0.0):
                self._finish()

    def _renew(self) -> None:
        self._check_idle()
        self._asked = WakeEvent()

    def _start(self, *, drain: bool) -> None:
        with self._lock:
            self._check_idle()
            at_once(self._begin(self._make_runtime(ThreadExecutor, self._stop_soon, drain=drain)))

    def stop(self, grace: timedelta | None = None) -> None:
        """Take no further messages, let handlers finish, release the rest, and return. The worker can start again.

        A call from one of this worker's handlers returns at once; the worker then stops after its handlers have
        finished. A second call with a shorter grace shortens that of the first.

        Args:
            grace: How long handlers may go on; default: the worker's. Handlers that take longer are abandoned: their
                messages are released, ``context.check()`` raises, sessions refuse commits, child processes are killed.

        Raises:
            InvalidArgument: The grace is no duration.
        """
        # Ask before taking the lock, which a stop under way holds.
        self._ask(self._until(grace))
        if self._executor is not None and self._executor.calls_this():
            self._in_thread(self._finish)
        else:
            self._finish()

    def _finish(self) -> None:
        with self._lock:
            if self._runtime is not None:
                at_once(self._end(self._runtime))

    def _stop_soon(self, runtime: Runtime) -> None:
        def stop() -> None:
            with self._lock:
                if self._runtime is runtime:
                    self.stop()

        # In another thread, since the stop waits for the caller's thread.
        self._in_thread(stop)

    def _in_thread(self, stop: Callable[[], None]) -> None:
        threading.Thread(target=stop, name=f"{self.name}-stop", daemon=True).start()

    def run(self, *, handle_signals: bool = False, drain: bool = False) -> None:
        """Work until the worker is asked to stop or, with *drain*, until nothing can be delivered now.

        Args:
            drain: Whether to return as soon as nothing can be delivered now. Before that, the worker runs the slots of
                schedules that are due at the start. It also handles messages that handlers enqueue meanwhile, and
                messages that are to be retried at once. It does not wait for messages that are due later, paused,
                limited or leased by others; ``leftovers`` counts the messages that are left.
            handle_signals: Whether SIGTERM and SIGINT stop it; a second one ends the process at once, unless it comes
                within two seconds of the first. Only in the main thread. Default: the program handles signals; a
                KeyboardInterrupt stops the worker and is raised again.

        Raises:
            InvalidArgument: Signals cannot be handled outside of the main thread. Other errors are as for ``start``.
        """

        def stop() -> None:
            self._ask(self._until())
            if self._checking:
                # Raised at once, since nothing has begun, and a check on a silent database may take half a minute.
                raise _StoppedAtStart

        with self._lock:
            self._renew()
        timings, clock = self._options.timings, self._options.clock
        with on_signal(stop, timings.signal_again, clock) if handle_signals else nullcontext():
            try:
                self._start(drain=drain)
                try:
                    self._wait(self._runtime if drain else None)
                finally:
                    self.stop()
            except _StoppedAtStart:
                self._options.log.info("was stopped before it had started")

    def _wait(self, draining: Runtime | None) -> None:
        timings = self._options.timings
        while draining is None or not draining.is_drained():
            if self._asked.wait(timings.signal_check if draining is None else timings.drain_check):
                break

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class AsyncWorker(Front):
    """Takes messages of one or several queues and calls their handlers in an event loop.

    The worker's own calls to the database run in threads with their own connections, so a handler that blocks the loop
    harms only the loop's other handlers. Plain functions run in threads. For other arguments see :class:`Worker`.

    Args:
        session_factory: Creates the AsyncSessions of async functions. Default: as for :class:`Worker`, from an
            async_sessionmaker.
        worker_engine: Creates the worker's own connections: an Engine or an AsyncEngine to the same database. Default:
            *engine*. Give one if *engine* connects in one event loop only, for example by an ``async_creator``.
        sync_session_factory: Creates the Sessions of plain functions that take one: ``sessionmaker(sync_engine)``, to
            the same database. It has no default, since the worker cannot know the arguments of such an engine.

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
        session_factory: Callable[[], AsyncSession] | None = None,
        sync_session_factory: Callable[[], Session] | None = None,
        **options: Unpack[WorkerArguments],
    ) -> None:
        if not isinstance(engine, AsyncEngine):
            raise refused(engine, "an AsyncEngine", "use a Worker")
        if worker_engine is not None and not isinstance(worker_engine, (Engine, AsyncEngine)):
            raise refused(worker_engine, "an Engine or an AsyncEngine as worker_engine")
        sessions = {"session_factory": session_factory, "sync_session_factory": sync_session_factory}
        checked = worker_options(options, engine=worker_engine or engine, queues=queues, **sessions)
        super().__init__(engine, checked)
        self._engine: AsyncEngine
        # One task for start and stop, since what a task opens may have to be closed by the same task.
        self._life: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._asked: asyncio.Event

    async def leftovers(self) -> tuple[Leftovers, ...]:
        """Return how many messages the worker's queues hold now, and why, as :meth:`Worker.leftovers` does.

        Example:
            >>> asyncio.run(AsyncWorker(async_engine, queue).leftovers())
            ()
        """
        async with self._engine.connect() as connection:
            return await connection.run_sync(read_leftovers, self._options.queues, self.name)

    async def start(self) -> None:
        """Begin to work in the running loop, and return.

        Raises:
            WorkerError: The worker runs already, or has a function that it cannot call. Or its engine connects in this
                loop only, and there is no ``worker_engine``.
            InvalidArgument, SchemaMismatch, StartError: As for :meth:`Worker.start`.

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
        await self._start(drain=False)

    async def _start(self, *, drain: bool) -> None:
        self._check_idle()
        loop = asyncio.get_running_loop()
        runtime = self._make_runtime(TaskExecutor, partial(self._stop_soon, loop), drain=drain)
        self._asked = asyncio.Event()
        started = self._started = loop.create_future()
        life = self._life = loop.create_task(self._live(runtime, started), name="fairqueue worker")
        try:
            await started
        except BaseException:
            life.cancel()
            await asyncio.wait({life})
            raise

    async def _live(self, runtime: Runtime, started: asyncio.Future[None]) -> None:
        try:
            await self._begin(runtime)
        except BaseException as error:  # noqa: BLE001 - it is raised where the start waits
            if not started.done():
                started.set_exception(error)
            return
        if not started.done():
            started.set_result(None)
        while not self._asked.is_set():
            try:
                await self._asked.wait()
            except asyncio.CancelledError:
                # The loop cancels its tasks, or the start was cancelled.
                self._ask(self._options.clock())
        await self._end(runtime)

    async def stop(self, grace: timedelta | None = None) -> None:
        """Take no further messages, let handlers finish, release the rest, and return. The worker can start again.

        A call from one of this worker's handlers, or from a task that a handler started, returns at once; the worker
        then stops after its handlers have finished. A cancel of the caller does not cancel the stop. If the worker is
        still starting, the stop begins when the start has ended. A second call with a shorter grace shortens the first.

        Args:
            grace: How long handlers may go on; default: the worker's. Handlers that still run afterwards are cancelled.
        """
        until, life = self._until(grace), self._life
        if life is None or life.done() or (loop := life.get_loop()).is_closed():
            return
        is_here = loop is asyncio.get_running_loop()
        if not is_here and loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.stop(grace), loop))
            return
        self._ask(until)
        is_within = self._executor is not None and self._executor.calls_this()
        if is_here and not is_within and asyncio.current_task() is not life:
            await asyncio.shield(life)

    def _stop_soon(self, loop: asyncio.AbstractEventLoop, runtime: Runtime) -> None:
        # The loop may be closed already.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: self._ask(self._until()) if self._runtime is runtime else None)

    def _stop_by_signal(self) -> None:
        if self._started is not None and not self._started.done():
            # The start need not wait for its check, which a silent database may delay for half a minute.
            self._started.set_exception(_StoppedAtStart())
        else:
            self._ask(self._until())

    async def run(self, *, handle_signals: bool = False, drain: bool = False) -> None:
        """Work until the worker is asked to stop or, with *drain*, until nothing can be delivered now.

        A cancel of this call stops the worker without grace.

        Args:
            drain: Whether to return as soon as nothing can be delivered now, as for :meth:`Worker.run`.
            handle_signals: As for :meth:`Worker.run`.

        Raises:
            InvalidArgument: Signals cannot be handled outside of the main thread. Other errors are as for ``start``.
        """
        self._check_idle()
        with ExitStack() as signals:
            if handle_signals:
                loop = asyncio.get_running_loop()
                stop = partial(loop.call_soon_threadsafe, self._stop_by_signal)
                signals.enter_context(on_signal(stop, self._options.timings.signal_again, self._options.clock))
                waking = loop.create_task(signals_wake_loop(self._options.timings.signal_check))
                signals.callback(waking.cancel)
            try:
                await self._start(drain=drain)
                await self._serve(self._runtime if drain else None)
            except _StoppedAtStart:
                self._options.log.info("was stopped before it had started")
            except asyncio.CancelledError:
                await self.stop(timedelta())
                raise

    async def _serve(self, draining: Runtime | None) -> None:
        life = self._life
        assert life is not None  # noqa: S101 - it has started
        while draining is not None and not self._asked.is_set():
            if draining.is_drained():
                self._ask(self._until())
            else:
                await asyncio.wait({life}, timeout=self._options.timings.drain_check)
        await asyncio.shield(life)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _check(self, runtime: Runtime) -> None:
        """Check as a Worker does. Without worker_engine, raise WorkerError if *engine* connects in this loop only."""
        try:
            await super()._check(runtime)
        except Exception as error:
            if isinstance(error, FairQueueError) or self._options.engine is not self._engine:
                raise
            connects_here = False
            with suppress(Exception):
                async with asyncio.timeout(self._options.timings.connect), self._engine.connect():
                    connects_here = True
            if not connects_here:
                raise
            raise WorkerError(
                f"worker {self.name} cannot make its own connections, in event loops of its own, and its engine can "
                f"connect in this loop ({type(error).__name__}: {said(error)}); if the engine's async_creator serves "
                "one loop, give AsyncWorker(worker_engine=...), an Engine or AsyncEngine that connects in any"
            ) from error

    def _is_busy(self) -> bool:
        return self._life is not None and not self._life.done() and not self._life.get_loop().is_closed()
