"""A collector for a registry of prometheus-client."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_fairqueue.errors import FairQueueError, InvalidArgument
from sqlalchemy_fairqueue.figures import SharedFigures
from sqlalchemy_fairqueue.metrics.families import queue_families, up_family, worker_families
from sqlalchemy_fairqueue.queue.base import schema_of
from sqlalchemy_fairqueue.texts import logged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.worker import AsyncWorker, Worker

logger = logging.getLogger(__name__)


class QueueCollector(Collector):
    """The metrics of queues, and of workers of this process: ``REGISTRY.register(QueueCollector(engine))``.

    The database is asked once a scrape, in one transaction that locks nothing. If it does not answer, ``fairqueue_up``
    is 0, the metrics of queues are missing, and all others of the registry are exported.

    Args:
        engine: Connects to the database, as a role that is granted ``monitor``. Give metrics an Engine of their own
            with a short ``connect_timeout`` and ``statement_timeout``. An AsyncEngine serves :func:`asgi_application`
            alone.
        queues: The queues. Default: all of the installation.
        schema: The schema of the installation. None: the queues' own, or where the search_path finds it.
        workers: Workers of this process.
        figures: Figures to use in place of *engine* and *queues*, as those of a dashboard in the same process.

    Example:
        >>> registry = CollectorRegistry()  # as a rule prometheus_client.REGISTRY
        >>> registry.register(QueueCollector(engine, queue))
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> registry.get_sample_value("fairqueue_messages", {"queue": queue.name, "state": "ready"})
        1
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine | None = None,
        *queues: Queue,
        schema: str | None = None,
        workers: Iterable[Worker | AsyncWorker] = (),
        figures: SharedFigures | None = None,
    ) -> None:
        if (engine is None) == (figures is None):
            raise TypeError("QueueCollector needs an engine or figures, and not both")
        found = schema_of(queues)
        schema = found if schema is None else schema
        self.figures: SharedFigures = figures or SharedFigures(engine, queues or None, schema=schema)  # type: ignore[arg-type]
        self._workers = tuple(workers)

    def describe(self) -> Iterable[Metric]:
        """Nothing: to register it does not ask the database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics now.

        Raises:
            TypeError: It was made with an AsyncEngine.
        """
        if not isinstance(self.figures.engine, Engine):
            raise TypeError("a registry cannot await an AsyncEngine; mount asgi_application, or give an Engine")
        try:
            self.figures.get()
        except (SQLAlchemyError, FairQueueError) as error:
            yield from self.families(refused=error)
        else:
            yield from self.families(refused=None)

    def families(self, *, refused: Exception | None) -> Iterator[Metric]:
        """The metrics of what was read last.

        Args:
            refused: Why nothing could be read now. None: it was.
        """
        if refused is not None:
            logger.warning("the figures of the queues cannot be read: %s: %s", type(refused).__name__, logged(refused))
        yield up_family(answered=refused is None)
        if refused is None:
            yield from queue_families(self.figures)
        yield from worker_families(self._workers)


class WorkerCollector(Collector):
    """The metrics of workers of this process alone, for processes that do not export those of queues.

    It asks no database.

    Args:
        workers: The workers.

    Example:
        >>> registry = CollectorRegistry()
        >>> registry.register(WorkerCollector(Worker(engine, queue, concurrency=1, name="calls-1")))
        >>> registry.get_sample_value("fairqueue_worker_events_total", {"worker": "calls-1", "event": "completed"})
        0
    """

    def __init__(self, *workers: Worker | AsyncWorker) -> None:
        for worker in workers:
            if not hasattr(worker, "stats") or not hasattr(worker, "health"):
                raise InvalidArgument(f"workers has {worker!r:.80} where a Worker or AsyncWorker is needed")
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        return worker_families(self._workers)
