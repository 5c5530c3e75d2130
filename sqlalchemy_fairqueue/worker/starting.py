"""What a worker looks at before it starts: mistakes that would cost messages later. It asks no database."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, QueuePool

from sqlalchemy_fairqueue.asynchronous import AsyncEngine, AsyncSession
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.worker.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy.orm import Session

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.worker.options import WorkerOptions


def check_handlers(queues: Iterable[Queue]) -> None:
    """Refuse queues without any handler: all of their messages would become dead letters.

    Raises:
        InvalidArgument: A queue has none.
    """
    for queue in queues:
        if not queue.handlers:
            raise InvalidArgument(
                f"queue {queue.name!r} has no handlers; declare them with @queue.handler(...), and import the modules "
                "that hold them before the worker starts (fairqueue worker: with --import)"
            )


def check_main_thread() -> None:
    """Refuse to handle signals where Python does not let anybody.

    Raises:
        InvalidArgument: This is another thread than the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        raise InvalidArgument(
            f"handle_signals is True in thread {threading.current_thread().name!r}, and Python handles signals in the "
            "main thread only; run the worker there, or leave signals to the program and let it call stop()"
        )


def check_sessions(settings: WorkerOptions, make: Callable[[], object], kind: type[Session | AsyncSession]) -> None:
    """Make a session, and refuse a factory that makes something else: each call of a handler would cost an attempt.

    Raises:
        InvalidArgument: It does.
    """
    if not _take_sessions(settings):
        return
    made: Any = make()
    if isinstance(made, kind):
        # Not closed: nothing was asked of it, and a scoped_session gives the one that its caller works with.
        return
    if inspect.iscoroutine(made):
        made.close()
    wanted, maker = "a Session", "a sessionmaker"
    if kind is AsyncSession:
        wanted, maker = "an AsyncSession", "an async_sessionmaker"
    raise InvalidArgument(
        f"session_factory makes a {type(made).__name__} where worker {settings.name} needs {wanted}; give {maker}, or "
        "what makes such sessions"
    )


def warn_of_pool(settings: WorkerOptions, sessions: object) -> None:
    """Say so if handlers' sessions will wait for one another's connections. The worker's own are apart from the pool.

    Args:
        settings: The worker's.
        sessions: What makes the sessions; of another maker than SQLAlchemy's the engine is not known.
    """
    if not _take_sessions(settings):
        return
    bind = getattr(sessions, "kw", {}).get("bind")
    room = _room(bind.sync_engine if isinstance(bind, AsyncEngine) else bind)
    if room is not None and room < settings.concurrency:
        log.warning(
            "worker %s calls %d handlers at a time, and the pool of their sessions has %d connection(s): some will "
            "wait for one, and fail after pool_timeout, which costs their messages an attempt; create the engine with "
            "pool_size=%d, or give the worker concurrency=%d",
            settings.name,
            settings.concurrency,
            room,
            settings.concurrency,
            room,
            extra={"worker": settings.name},
        )


def _take_sessions(settings: WorkerOptions) -> bool:
    return any(handler.session for queue in settings.queues for handler in queue.handlers.values())


def _room(engine: object) -> int | None:
    """The most connections of an engine's pool; None: it is not known, or there is no limit."""
    if not isinstance(engine, Engine) or not isinstance(engine.pool, QueuePool):
        return None
    pool: Any = engine.pool
    size: int = pool.size()
    # Not public, and said by status() only in words.
    overflow: int = getattr(pool, "_max_overflow", -1)
    return None if size == 0 or overflow < 0 else size + overflow
