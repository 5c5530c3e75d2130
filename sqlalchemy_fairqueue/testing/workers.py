"""Workers that a test starts and need not stop."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.worker import AsyncWorker, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
    from sqlalchemy_fairqueue.queue import Queue


class Workers:
    """The workers of a test. Call the object with queues to start a worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._started: list[Worker] = []

    def __call__(self, *queues: Queue, **options: Any) -> Worker:
        """Start a worker for these queues; *options* are further arguments of :class:`sqlalchemy_fairqueue.Worker`."""
        worker = Worker(self._engine, *queues, **options)
        worker.start()
        self._started.append(worker)
        return worker

    def drain(self, *queues: Queue, **options: Any) -> Worker:
        """Run a worker until nothing can be delivered now, and return it, for its ``stats`` and ``leftovers()``.

        Messages must be committed. Due schedules enqueue their messages first, and finished groups their follow-ups.
        Messages that are due later stay. If a handler fails, its message is retried by its policy; nothing is raised.
        """
        worker = Worker(self._engine, *queues, **options)
        worker.run(drain=True)
        return worker

    def stop(self) -> None:
        """Stop all started workers without grace."""
        while self._started:
            self._started.pop().stop(timedelta())


class AsyncWorkers:
    """The async workers of a test. Call the object with queues to run a worker during an ``async with`` block."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def __call__(self, *queues: Queue, **options: Any) -> AsyncIterator[AsyncWorker]:
        """Run a worker in the running event loop during the ``async with`` block, then stop it without grace."""
        worker = AsyncWorker(self._engine, *queues, **options)
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop(timedelta())

    async def drain(self, *queues: Queue, **options: Any) -> AsyncWorker:
        """Run a worker until nothing can be delivered now, as :meth:`Workers.drain` does."""
        worker = AsyncWorker(self._engine, *queues, **options)
        await worker.run(drain=True)
        return worker
