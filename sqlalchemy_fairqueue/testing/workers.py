"""Workers that a test starts and need not stop."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.worker import AsyncWorker, Worker

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
    from sqlalchemy_fairqueue.queue import Queue

_NO_GRACE = timedelta()


class Workers:
    """The workers of a test. Call the object with queues to start a worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._started = ExitStack()

    def __call__(self, *queues: Queue, **options: Any) -> Worker:
        """Start a worker for these queues; *options* are further arguments of :class:`sqlalchemy_fairqueue.Worker`."""
        return self._started.enter_context(Worker(self._engine, *queues, **{"grace": _NO_GRACE, **options}))

    def drain(self, *queues: Queue, **options: Any) -> Worker:
        """Run a worker until nothing can be delivered now, and return it, for its ``stats`` and ``leftovers()``.

        Messages must be committed. Due schedules enqueue their messages first. Groups that are finished meanwhile
        enqueue their follow-ups, which are handled too. Messages that are due later stay. If a handler fails, its
        message is retried by its policy; nothing is raised.
        """
        worker = Worker(self._engine, *queues, **options)
        worker.run(drain=True)
        return worker

    def stop(self) -> None:
        """Stop all started workers. Each gets the ``grace`` that it was started with, by default none."""
        self._started.close()


class AsyncWorkers:
    """The async workers of a test. Call the object with queues to run a worker during an ``async with`` block."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    def __call__(self, *queues: Queue, **options: Any) -> AsyncWorker:
        """Return a worker for an ``async with`` block. The end of the block stops it, by default without grace."""
        return AsyncWorker(self._engine, *queues, **{"grace": _NO_GRACE, **options})

    async def drain(self, *queues: Queue, **options: Any) -> AsyncWorker:
        """Run a worker until nothing can be delivered now, as :meth:`Workers.drain` does."""
        worker = AsyncWorker(self._engine, *queues, **options)
        await worker.run(drain=True)
        return worker
