"""Workers that a test starts and need not stop."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.worker import Worker

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.queue import Queue


class Workers:
    """The workers of a test: called with queues it starts one.

    Args:
        engine: The test's database.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._started: list[Worker] = []

    def __call__(self, *queues: Queue, **options: Any) -> Worker:
        """Start a worker, in threads of its own.

        Args:
            queues: Its queues.
            options: Further arguments of :class:`sqlalchemy_fairqueue.Worker`.
        """
        worker = self._made(*queues, **options)
        worker.start()
        self._started.append(worker)
        return worker

    def drain(self, *queues: Queue, **options: Any) -> Worker:
        """Run a worker until nothing is left that could be delivered now, and return it, for its ``stats``.

        Messages must be committed. What is due later stays.
        """
        worker = self._made(*queues, **options)
        worker.run(drain=True)
        return worker

    def stop(self) -> None:
        """Stop those that were started, without grace."""
        while self._started:
            self._started.pop().stop(timedelta())

    def _made(self, *queues: Queue, **options: Any) -> Worker:
        return Worker(self._engine, *queues, **{"housekeeping": False, **options})
