"""The arguments of a worker. They are checked when it is created; its handlers are checked when it starts."""
# ruff: noqa: RUF009 - the calls make fields

from __future__ import annotations

import inspect
import itertools
import multiprocessing
import os
import pickle
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypedDict

from sqlalchemy import Engine, QueuePool
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine, AsyncSession
from sqlalchemy_fairqueue.database.drivers import driver_of
from sqlalchemy_fairqueue.errors import InvalidArgument, WorkerError
from sqlalchemy_fairqueue.queue import Queue
from sqlalchemy_fairqueue.queue.contexts import AnyMiddleware, check_middleware, middleware_for, middleware_of
from sqlalchemy_fairqueue.queue.deliveries import MAX_BYTES, MOST_BYTES
from sqlalchemy_fairqueue.queue.handlers import Handler, check_options, handlers_of, lifespan_of, session_type_of
from sqlalchemy_fairqueue.texts import said
from sqlalchemy_fairqueue.values.checks import check_name
from sqlalchemy_fairqueue.values.fields import Count, Duration, check_fields
from sqlalchemy_fairqueue.values.outcomes import RetryPolicy
from sqlalchemy_fairqueue.worker.connection import ConnectionOptions
from sqlalchemy_fairqueue.worker.telemetry import WorkerLog, WorkerStats
from sqlalchemy_fairqueue.worker.timings import Backoff

MOST_PREFETCH = 500


class WorkerArguments(TypedDict, total=False):
    """The arguments of both workers, which :class:`sqlalchemy_fairqueue.Worker` documents."""

    concurrency: int
    lease: timedelta
    poll_interval: timedelta | None
    listen: bool
    grace: timedelta
    retry: RetryPolicy | None
    prefetch: int
    max_bytes: int
    name: str | None
    housekeeping: bool
    middleware: Sequence[AnyMiddleware]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions(ConnectionOptions):
    """The checked arguments of a worker, which :class:`sqlalchemy_fairqueue.Worker` documents, and its stats.

    Attributes:
        session_factory: Creates the sessions of async functions.
        sync_session_factory: Creates the sessions of plain functions. Worker names this argument ``session_factory``.
        drain: Whether the worker ends once it is drained. If so, it runs only slots that are due at its start.
        references: The command line's options that name each queue, for the log. The keys are schema and queue.
    """

    queues: tuple[Queue, ...]
    concurrency: int = Count(most=10_000).field(8)
    lease: timedelta = Duration(least=timedelta(milliseconds=100)).field(timedelta(seconds=30))
    poll_interval: timedelta | None = Duration(least=timedelta(milliseconds=1), none="by notifications").field(None)
    grace: timedelta = Duration(least=timedelta()).field(timedelta(seconds=30))
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    prefetch: int = Count(least=0, most=MOST_PREFETCH).field(MOST_PREFETCH)
    max_bytes: int = Count(most=MOST_BYTES).field(MAX_BYTES)
    name: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}")
    housekeeping: bool = True
    middleware: Sequence[AnyMiddleware] = ()
    session_factory: Callable[[], AsyncSession] | None = None
    sync_session_factory: Callable[[], Session] | None = None
    drain: bool = False
    references: Mapping[tuple[str | None, str], str] = field(default_factory=dict)
    stats: WorkerStats = field(default_factory=WorkerStats)

    def __post_init__(self) -> None:
        driver_of(self.engine.sync_engine if isinstance(self.engine, AsyncEngine) else self.engine)
        _check_queues(self.queues)
        for queue in self.queues:
            self.stats.attempts(queue.name)
        check_fields(self)
        check_options(retry=self.retry)
        check_name("name", self.name)
        for factory in self.session_factory, self.sync_session_factory:
            if factory is not None and not callable(factory):
                raise InvalidArgument(
                    f"the session factory {factory!r:.80} makes no sessions; give a sessionmaker, an "
                    "async_sessionmaker for async handlers, or a function"
                )
        if callable(self.middleware) or not isinstance(self.middleware, Iterable):
            raise InvalidArgument(f"middleware is {self.middleware!r:.80}; give a list of functions")
        object.__setattr__(self, "middleware", tuple(self.middleware))
        for function in self.middleware:
            check_middleware(function)

    @property
    def log(self) -> WorkerLog:
        return WorkerLog(self.name)

    def backoff(self, step: str, cap: float = 5.0) -> Backoff:
        return Backoff(step, self.name, self.clock, self.timings, cap)

    @property
    def beat(self) -> float:
        return self.lease.total_seconds() / self.timings.heartbeats

    @property
    def ask(self) -> timedelta:
        """The least time for which a dequeue leases, half of *lease*. A lease with less time left is not used again."""
        return self.lease / 2

    @property
    def stuck_after(self) -> float:
        return max(self.lease.total_seconds(), self.timings.stuck_after)

    def interval(self, *, notified: bool) -> float:
        """Return the seconds between two polls of an idle queue, depending on whether notifications arrive now."""
        usual = timedelta(seconds=5 if notified else 1)
        asked = self.poll_interval or usual
        return (asked if notified or not self.listen else min(asked, usual)).total_seconds()

    def session_handlers(self, *, asynchronous: bool) -> list[Handler]:
        handlers = [handler for queue in self.queues for handler in handlers_of(queue).values()]
        return [one for one in handlers if one.session and one.asynchronous == asynchronous]


def _check_queues(queues: tuple[Queue, ...]) -> None:
    if not queues:
        raise InvalidArgument("a worker got no queue; give it one or several")
    for queue in queues:
        if not isinstance(queue, Queue):
            raise InvalidArgument(
                f"queues has {queue!r:.80} where a Queue is needed; give each queue as an argument: "
                "Worker(engine, documents, mails)"
            )
    targets = [(queue.schema, queue.name) for queue in queues]
    if len(set(targets)) < len(targets):
        raise InvalidArgument(f"queues names one queue twice: {targets!r:.200}; give each once")


def worker_options(arguments: WorkerArguments, **given: Any) -> WorkerOptions:
    given |= {name: value for name, value in arguments.items() if value is not None}
    return WorkerOptions(**given)


def ready_options(options: WorkerOptions, engine: Engine | AsyncEngine) -> WorkerOptions:
    _check_handlers(options, in_loop=isinstance(engine, AsyncEngine))
    if not isinstance(engine, AsyncEngine):
        make = options.sync_session_factory or sessionmaker(engine, class_=session_type_of(options.queues, Session))
        _check_sessions(options, make, Session)
        return replace(options, sync_session_factory=make)
    # Imported only here, since the import fails without greenlet. An AsyncEngine needs greenlet anyway.
    from sqlalchemy.ext.asyncio import async_sessionmaker  # noqa: PLC0415

    session_type = session_type_of(options.queues, AsyncSession)
    make_async = options.session_factory or async_sessionmaker(engine, class_=session_type)
    _check_sessions(options, make_async, AsyncSession)
    if options.sync_session_factory is not None:
        _check_sessions(options, options.sync_session_factory, Session, "sync_session_factory")
    return replace(options, session_factory=make_async)


def _check_handlers(options: WorkerOptions, *, in_loop: bool) -> None:
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise WorkerError(
            "a worker was started while a child process imports the main module; start it under "
            "if __name__ == '__main__':"
        )
    for queue in options.queues:
        if not handlers_of(queue):
            raise InvalidArgument(
                f"queue {queue.name!r} has no handlers; declare them with @queue.handler(...), and import the modules "
                "that hold them before the worker starts (fairqueue worker: with --import)"
            )
        for handler in handlers_of(queue).values():
            middleware_for(handler, middleware_of(queue, options.middleware))
            if handler.isolated and (problem := _problem_of_process(handler.function)) is not None:
                raise WorkerError(
                    f"no child process can run the handler of kind {handler.kind!r} of queue {queue.name!r}: {problem}"
                )
            if handler.asynchronous and not in_loop:
                raise WorkerError(
                    f"the handler of kind {handler.kind!r} of queue {queue.name!r} is async, and this worker calls "
                    "handlers in threads; use an AsyncWorker, or make it a plain function"
                )
        for one in itertools.chain(*lifespan_of(queue)):
            if one.asynchronous and not in_loop:
                raise WorkerError(
                    f"function {one.name!r} of the start or stop of queue {queue.name!r} is async, and this worker "
                    "has no event loop; use an AsyncWorker, or make it a plain function"
                )
    takers = options.session_handlers(asynchronous=False)
    if in_loop and takers and options.sync_session_factory is None:
        raise WorkerError(
            f"the handler of kind {takers[0].kind!r} is a plain function that takes a session, and this worker has "
            "AsyncSessions; make it async, or give AsyncWorker(sync_session_factory=sessionmaker(engine)), with a "
            "sync engine to the same database"
        )


def _check_sessions(
    options: WorkerOptions,
    make: Callable[[], object],
    kind: type[Session | AsyncSession],
    name: str = "session_factory",
) -> None:
    handlers = options.session_handlers(asynchronous=kind is AsyncSession)
    if not handlers:
        return
    # The session is not closed, since it was not used, and a scoped_session returns the caller's own.
    made: Any = make()
    for handler in handlers:
        annotated = handler.session_type
        wanted = annotated if annotated is not None and issubclass(annotated, kind) else kind
        if not isinstance(made, wanted):
            if inspect.iscoroutine(made):
                made.close()
            maker = "an async_sessionmaker" if kind is AsyncSession else "a sessionmaker"
            raise InvalidArgument(
                f"{name} makes a {type(made).__name__} where worker {options.name} needs sessions of "
                f"{wanted.__module__}.{wanted.__qualname__}; give {maker} with class_= that class, for the handler of "
                f"kind {handler.kind!r}, or correct its annotation"
            )
    _warn_of_pool(options, make)


def _warn_of_pool(options: WorkerOptions, sessions: object) -> None:
    bind = getattr(sessions, "kw", {}).get("bind")
    pool: Any = getattr(bind.sync_engine if isinstance(bind, AsyncEngine) else bind, "pool", None)
    if not isinstance(pool, QueuePool):
        return
    # A private attribute, since the public status() has it only as text.
    size, overflow = pool.size(), getattr(pool, "_max_overflow", -1)
    is_limited = size > 0 and overflow >= 0
    if is_limited and size + overflow < options.concurrency:
        options.log.warning(
            "calls %d handlers at a time, and the pool of their sessions has %d connection(s): some will "
            "wait for one, and fail after pool_timeout, which costs their messages an attempt; create the engine with "
            "pool_size=%d, or give the worker concurrency=%d",
            *(options.concurrency, size + overflow, options.concurrency, size + overflow),
        )


def _problem_of_process(function: Callable[..., Any]) -> str | None:
    if multiprocessing.current_process().daemon:
        return "this is a daemonic process of multiprocessing, which may have no children; start it with daemon=False"
    if not hasattr(os, "killpg"):
        return f"{sys.platform} has no groups of processes to kill it by; leave isolation out there"
    main = sys.modules["__main__"]
    if function.__module__ == "__main__" and not (main.__spec__ or hasattr(main, "__file__")):
        return "the main module has no file to import it from; move it to another module"
    try:
        pickle.dumps(function)
    except Exception as error:  # noqa: BLE001 - a handler that cannot be pickled cannot be named to another process
        return f"{said(error)}; move it to the top of a module, and let @queue.handler be its outermost decorator"
    return None
