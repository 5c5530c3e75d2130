"""The worker of threaded programs."""

from __future__ import annotations

import itertools
import threading
from contextlib import nullcontext, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue.database.engines import refused
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.figures.leftovers import read_leftovers
from sqlalchemy_fairqueue.queue.deliveries import MAX_BYTES
from sqlalchemy_fairqueue.queue.handlers import handlers_of, lifespan_of, session_type_of
from sqlalchemy_fairqueue.values.outcomes import RetryPolicy
from sqlalchemy_fairqueue.worker.executor import ThreadExecutor
from sqlalchemy_fairqueue.worker.lifespan import Lifespan, at_once
from sqlalchemy_fairqueue.worker.operating_system import on_signal
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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.contexts import AnyMiddleware
    from sqlalchemy_fairqueue.values.reports import Leftovers


class _StoppedAtStart(BaseException):
    """A signal came while the worker looked at the schemas. No handler of an error is to see it."""


class Worker(Front[ThreadExecutor]):
    """Takes messages of one or several queues and calls their handlers in threads.

    It holds three connections of its own beside those of its handlers' sessions, and shares one that listens with the
    other workers of the process. It survives failures of the database; see :doc:`/workers` for what it guarantees and
    what handlers owe.

    Args:
        engine: A sync Engine to the database of the queues.
        queues: The queues, served in turn. Their handlers must be declared: ``@queue.handler("parse")``.
        concurrency: How many handlers run at a time.
        lease: How long a message stays with this worker after a sign of life; by default 30 seconds. A crashed worker's
            messages come back after so long; a worker that is cut off from the database for so long loses its messages.
        poll_interval: Longest time between two polls of an idle queue. Default: 5 seconds, and without notifications 1.
        listen: Whether to listen for notifications, and be woken by them. Set it to False behind a transaction pooler.
        grace: How long handlers may go on after ``stop``; then their messages are given back, uncounted.
        retry: When failed messages are tried again, unless their handler was declared with another policy.
        session_factory: Makes the sessions of handlers that take one. Default: a sessionmaker of the engine, of the
            class that handlers annotate their ``session`` with, such as SQLModel's Session.
        prefetch: Most messages taken ahead of their handler, 0 to 500. It holds a tenth of a second's work at most.
        max_bytes: Most bytes of contents and headers that one dequeue takes and that wait for a handler, 64 MiB by
            default. One message may have more. Those that handlers work on come on top.
        name: Shown beside its leases and in the log. Default: host, process and a random part.
        housekeeping: Whether it does its share of chores: schedules, partitions of the history.
        middleware: Functions around each call of a handler, outermost first, such as one that traces it. They go around
            those of the queues; what they may do is told by ``Queue.middleware``.

    Raises:
        InvalidArgument: A bad argument.

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
        concurrency: int = 8,
        lease: timedelta = LEASE,
        poll_interval: timedelta | None = None,
        listen: bool = True,
        grace: timedelta = GRACE,
        retry: RetryPolicy | None = None,
        session_factory: Callable[[], Session] | None = None,
        prefetch: int = MOST_PREFETCH,
        max_bytes: int = MAX_BYTES,
        name: str | None = None,
        housekeeping: bool = True,
        middleware: Sequence[AnyMiddleware] = (),
    ) -> None:
        if not isinstance(engine, Engine):
            raise refused(engine, "an Engine", "use an AsyncWorker")
        options = WorkerOptions(
            engine=engine,
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
            sync_session_factory=session_factory,
        )
        super().__init__(options)
        self._engine = engine
        # A signal handler of the application's may call stop() while the same thread does.
        self._lock = threading.RLock()
        self._lifespan: Lifespan | None = None
        self._starting = False
        # Whether the start looks at the schemas: a signal ends it then.
        self._checking = False
        # Until when handlers may go on, if a stop came while it started.
        self._stop_asked: float | None = None
        # run() waits for an entry. Reentrant, too.
        self._stops: SimpleQueue[None] | None = None

    def leftovers(self) -> tuple[Leftovers, ...]:
        """The messages that its queues hold now, and why they wait: what ``run(drain=True)`` has left.

        It asks the database, on a connection of the engine, by a role that has the grant "monitor" or "operator". A
        queue of 1,000 busy channels takes some tens of milliseconds.

        Returns:
            One for each queue that holds messages; empty: nothing is left.

        Raises:
            NotGranted: The role's grants are for other queues.

        Example:
            >>> @queue.handler
            ... def greet(delivery: Delivery) -> None: ...
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(hours=1))
            >>> worker = Worker(engine, queue)
            >>> worker.run(drain=True)
            >>> [(left.scheduled, str(left.reasons[0].reason)) for left in worker.leftovers()]
            [(1, 'scheduled')]
        """
        with self._engine.connect() as connection:
            return read_leftovers(connection, self._options.queues, self.name)

    def start(self) -> None:
        """Begin to work, in threads of its own, and return.

        Raises:
            WorkerError: It runs already, or a handler cannot be called by it.
            InvalidArgument: A queue has no handlers, or the session factory makes no Session.
            SchemaMismatch: A queue is not installed, or in a version that is too old.
            StartError: A function that a queue declared with ``on_start`` failed.

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
            self._check_idle(is_busy=self._runtime is not None)
            self._check_handlers()
            self._starting = True
            try:
                self._start()
            finally:
                self._starting = self._checking = False
                asked, self._stop_asked = self._stop_asked, None
            if asked is not None:
                self._stop(asked)

    def _start(self) -> None:
        sessions = self._options.sync_session_factory
        if sessions is None:
            sessions = sessionmaker(self._engine, class_=session_type_of(self._options.queues, Session))
        options = replace(self._options, sync_session_factory=sessions)
        check_sessions(options, sessions, Session)
        lifespan = Lifespan(options)
        runtime = Runtime(options, ThreadExecutor, self.stats, lifespan, self._stop_soon, drain=self._draining)
        self._checking = True
        runtime.check()
        try:
            at_once(lifespan.start())
            self._checking = False
            self._executor = runtime.executor
            runtime.start()
        except BaseException:
            self._checking = False
            at_once(lifespan.stop())
            raise
        self._lifespan, self._runtime = lifespan, runtime
        self._started()

    def stop(self, grace: timedelta | None = None) -> None:
        """Take no further messages, let handlers finish, release the rest uncounted, and return. It can start again.

        A handler of this worker cannot wait for itself: called by one this returns at once, and the worker stops when
        its handlers have finished. A second call with a shorter grace shortens that of the first.

        Args:
            grace: How long handlers may go on; default: the worker's. One that is still at it then is left behind: its
                message is given back, ``context.check()`` raises, and its session refuses to commit. Its child process,
                if it has one, is killed.

        Raises:
            InvalidArgument: The grace is no duration.
        """
        until = self._options.clock() + self._options.grace_seconds(grace)
        executor = self._executor
        if executor is not None and not self._starting:
            # Before the lock, which a stop that is under way holds.
            executor.shorten_grace(until)
        if executor is not None and executor.calls_this():
            threading.Thread(target=self._stop, args=(until,), name=f"{self.name}-stop", daemon=True).start()
        else:
            self._stop(until)

    def _stop_soon(self, runtime: Runtime[ThreadExecutor]) -> None:
        """Stop this runtime, from one of its own threads, which the stop waits for."""
        threading.Thread(target=self._stop_if_running, args=(runtime,), name=f"{self.name}-stop", daemon=True).start()

    def _stop_if_running(self, runtime: Runtime[ThreadExecutor]) -> None:
        with self._lock:
            if self._runtime is not runtime:
                return
            if self._stops is not None:
                # run() stops: the process must not end before.
                self._stops.put(None)
                return
            self._stop(self._options.clock() + self._options.grace_seconds(None))

    def _stop(self, until: float) -> None:
        with self._lock:
            if self._runtime is None:
                # A signal handler calls this, in the middle of a start or right before it.
                if self._starting:
                    self._stop_asked = until
                if self._stops is not None:
                    self._stops.put(None)
                return
            runtime, self._runtime = self._runtime, None
            runtime.executor.shorten_grace(until)
            try:
                at_once(runtime.end())
            finally:
                if self._lifespan is not None:
                    at_once(self._lifespan.stop())
                if self._stops is not None:
                    self._stops.put(None)
        self._stopped()

    def run(self, *, handle_signals: bool = False, drain: bool = False) -> None:
        """Work until ``stop`` is called, in another thread or by a signal.

        Args:
            drain: Whether to return as soon as nothing is left that could be delivered now, what handlers enqueue and
                what is to be tried again at once included. Slots of schedules that are due at the start are run, and
                those that become due later are left. What is due later, paused, beyond a limit or in the hands of
                others is not waited for; ``leftovers`` tells it. For tests, and for jobs that a scheduler starts.
            handle_signals: Whether SIGTERM and SIGINT stop it; a second one ends the process at once, unless it comes
                within two seconds of the first. Only in the main thread. Default: signals are the program's business; a
                KeyboardInterrupt stops it and is raised again.

        Raises:
            InvalidArgument: Signals are to be handled in another thread. Further as ``start``.
        """
        stops: SimpleQueue[None] = SimpleQueue()

        def stop() -> None:
            stops.put(None)
            if self._checking:
                # Nothing has begun, and a database that does not answer may take half a minute.
                raise _StoppedAtStart

        with self._lock:
            self._check_idle(is_busy=self._runtime is not None)
            self._stops = stops
            self._draining = drain
        try:
            with on_signal(stop, *self._options.signals) if handle_signals else nullcontext():
                try:
                    self.start()
                except _StoppedAtStart:
                    self._options.log.info("was stopped before it had started")
                    return
                try:
                    self._wait(stops, self._runtime if drain else None)
                finally:
                    self.stop()
        finally:
            self._stops = None
            self._checking = self._draining = False

    def _wait(self, stops: SimpleQueue[None], draining: Runtime[ThreadExecutor] | None) -> None:
        """Wait for a stop, or until the runtime is drained.

        A signal whose C handler runs in another thread, or right before this one begins to wait, does not wake it; its
        Python handler, which asks for the stop, runs when this thread next wakes up.
        """
        timings = self._options.timings
        while draining is None or not draining.is_drained():
            with suppress(Empty):
                stops.get(timeout=timings.signal_check if draining is None else timings.drain_check)
                break

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _check_handlers(self) -> None:
        check_handlers(self._options)
        for queue in self._options.queues:
            for handler in handlers_of(queue).values():
                if handler.asynchronous:
                    raise WorkerError(
                        f"the handler of kind {handler.kind!r} of queue {queue.name!r} is async, and this worker calls "
                        "handlers in threads; use an AsyncWorker, or make it a plain function"
                    )
            for one in itertools.chain(*lifespan_of(queue)):
                if one.asynchronous:
                    raise WorkerError(
                        f"function {one.name!r} of the start or stop of queue {queue.name!r} is async, and this worker "
                        "has no event loop; use an AsyncWorker, or make it a plain function"
                    )
