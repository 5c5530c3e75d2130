"""Defines the metrics, with names, meanings and labels, and the collectors that give them to prometheus-client."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import isinf
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_fairqueue.errors import FairQueueError, InvalidArgument
from sqlalchemy_fairqueue.figures.gauges import GAUGES
from sqlalchemy_fairqueue.figures.shared import SharedFigures
from sqlalchemy_fairqueue.queue.base import schema_of
from sqlalchemy_fairqueue.texts import logged
from sqlalchemy_fairqueue.worker.telemetry import SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
    from sqlalchemy_fairqueue.figures.queues import QueueFigures
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.worker import AsyncWorker, Worker
    from sqlalchemy_fairqueue.worker.telemetry import Bucket, Distribution

logger = logging.getLogger(__name__)

_NAMED = 80
"""The most characters of a channel's name in an exemplar. All labels of an exemplar together may have 128."""


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric.

    Attributes:
        name: Its name; that of a counter ends with ``_total``.
        suffixes: For histograms: the endings of the names of its series.

    Example:
        >>> [messages] = [metric for metric in METRICS if metric.name == "fairqueue_messages"]
        >>> messages.meaning, messages.series
        ('Messages by state: ready, scheduled, held, leased.', {'fairqueue_messages': ('queue', 'state')})
    """

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ("",)

    @property
    def series(self) -> dict[str, tuple[str, ...]]:
        """The names of its series, each with the names of its labels."""
        return {
            self.name + suffix: (*self.labels, *(("le",) if suffix == "_bucket" else ())) for suffix in self.suffixes
        }

    def family(self) -> GaugeMetricFamily | CounterMetricFamily:
        """Return the metric without values."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        return kind(self.name.removesuffix("_total"), self.meaning, labels=self.labels)


UP = MetricDefinition("fairqueue_up", "1 if the database answered, else 0.")
READ_SECONDS = MetricDefinition("fairqueue_read_seconds", "How long it took to read the figures of the queues.")

QUEUE_METRICS = [
    (MetricDefinition(gauge.name, gauge.meaning, ("queue", *filter(None, [gauge.label]))), gauge) for gauge in GAUGES
]
"""The metrics of each queue, each with the gauge that has its values."""

COMPLETED = MetricDefinition(
    "fairqueue_completed_messages_total",
    "Messages completed since this process first read the queue; only of queues that record their history.",
    ("queue",),
)
WORKER_EVENTS = MetricDefinition(
    "fairqueue_worker_events_total", "Counters of a worker of this process, by event.", ("worker", "event")
)
WORKER_HUNG = MetricDefinition(
    "fairqueue_worker_hung",
    "Handlers of a worker that run on although their time is over, or their message was cancelled.",
    ("worker",),
)

_HISTOGRAM = ("_bucket", "_count", "_sum")
LONGEST_WAITS = MetricDefinition(
    "fairqueue_longest_waits_seconds",
    "The channels that wait longest, 200 at most, by how long; the exemplar of a bucket names its longest, and why.",
    ("queue",),
    ("_bucket", "_gcount", "_gsum"),
)
WORKER_WAITS = MetricDefinition(
    "fairqueue_message_wait_seconds",
    "Time from the enqueue of a message to the begin of its first attempt by a worker of this process.",
    ("worker", "queue"),
    _HISTOGRAM,
)
WORKER_SERVICES = MetricDefinition(
    "fairqueue_message_service_seconds",
    "Time that a handler of a worker of this process took.",
    ("worker", "queue"),
    _HISTOGRAM,
)
WORKER_ATTEMPTS = MetricDefinition(
    "fairqueue_message_attempts",
    "Which attempt of its message an attempt of a worker of this process is.",
    ("worker", "queue"),
    _HISTOGRAM,
)

METRICS: tuple[MetricDefinition, ...] = (
    UP, READ_SECONDS, *(metric for metric, _ in QUEUE_METRICS), COMPLETED, LONGEST_WAITS, WORKER_EVENTS, WORKER_HUNG,
    WORKER_WAITS, WORKER_SERVICES, WORKER_ATTEMPTS,
)  # fmt: skip
"""All metrics."""


def queue_families(figures: SharedFigures) -> Iterator[Metric]:
    latest = figures.latest
    queues = latest.queues.values() if latest else ()
    took = READ_SECONDS.family()
    took.add_metric([], figures.took.total_seconds())
    yield took
    for definition, gauge in QUEUE_METRICS:
        family = definition.family()
        for queue in queues:
            for label, value in gauge.values(queue):
                own = [] if label is None else [f"{label:g}" if isinstance(label, float) else label]
                family.add_metric([queue.name, *own], value)
        yield family
    completed = COMPLETED.family()
    for queue in queues:
        if queue.records_history:
            completed.add_metric([queue.name], figures.completed(queue.name))
    yield completed
    yield _longest_waits(queues)


def _longest_waits(queues: Iterable[QueueFigures]) -> Metric:
    """Return the longest waits of tenants as a histogram. Its exemplars name tenants, since no label may name one."""
    family = GaugeHistogramMetricFamily(LONGEST_WAITS.name, LONGEST_WAITS.meaning, labels=LONGEST_WAITS.labels)
    for queue in queues:
        waited = ((queue.waited(one), one) for one in queue.contention.channels)
        waiting = [(wait.total_seconds(), one) for wait, one in waited if wait is not None]
        labels = {"queue": queue.name}
        lower = -1.0
        for bound in (*SECONDS, float("inf")):
            inside = [each for each in waiting if lower < each[0] <= bound]
            exemplar = None
            if inside:
                wait, longest = max(inside, key=lambda each: each[0])
                told = {"channel": longest.channel[:_NAMED], "reason": str(longest.reason)}
                exemplar = Exemplar(told, wait, queue.at.timestamp())
            count = sum(wait <= bound for wait, _ in waiting)
            family.add_sample(f"{family.name}_bucket", {**labels, "le": _le(bound)}, count, exemplar=exemplar)
            lower = bound
        family.add_sample(f"{family.name}_gcount", labels, len(waiting))
        family.add_sample(f"{family.name}_gsum", labels, sum(wait for wait, _ in waiting))
    return family


def up_family(*, answered: bool) -> Metric:
    family = UP.family()
    family.add_metric([], float(answered))
    return family


def worker_families(workers: Iterable[Worker | AsyncWorker]) -> Iterator[Metric]:
    events, hung = WORKER_EVENTS.family(), WORKER_HUNG.family()
    for worker in workers:
        hung.add_metric([worker.name], worker.stats.hung)
        for event, count in worker.stats.as_dict().items():
            events.add_metric([worker.name, event], count)
    yield from (events, hung)
    for definition, name in ((WORKER_WAITS, "wait"), (WORKER_SERVICES, "service"), (WORKER_ATTEMPTS, "attempt")):
        family = HistogramMetricFamily(definition.name, definition.meaning, labels=definition.labels)
        for worker in workers:
            for queue in worker.stats.queues:
                found: Distribution = getattr(worker.stats.attempts(queue), name)
                buckets = [_bucket(one) for one in found.buckets]
                family.add_metric([worker.name, queue], buckets, found.sum)
        yield family


def _bucket(one: Bucket) -> tuple[str, float] | tuple[str, float, Exemplar]:
    if one.example is None:
        return _le(one.bound), one.count
    exemplar = Exemplar({"channel": one.example.channel[:_NAMED]}, one.example.value, one.example.at)
    return _le(one.bound), one.count, exemplar


def _le(bound: float) -> str:
    return "+Inf" if isinf(bound) else str(bound)


class QueueCollector(Collector):
    """The metrics of queues, and of workers of this process: ``REGISTRY.register(QueueCollector(engine))``.

    A scrape asks the database at most once, in one transaction that locks nothing. The last figures are used again for
    two seconds, or for 60 times as long as it took to read them if that is longer. If the database does not answer,
    ``fairqueue_up`` is 0, the metrics of queues are missing, and all others of the registry are exported.

    Args:
        engine: Connects to the database, as a role that is granted ``monitor``. Give metrics their own Engine with a
            short ``connect_timeout`` and ``statement_timeout``. An AsyncEngine is only for :func:`asgi_application`.
        queues: The queues. Default: all of the installation.
        schema: The schema of the installation. Default: that of the queues, or the search_path finds it.
        workers: Workers of this process whose metrics are exported too.
        figures: The figures of a dashboard in this process, given in place of *engine* and *queues*.

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
        """Return nothing, so that a registration does not ask the database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics now; raise TypeError if the engine is an AsyncEngine."""
        if not isinstance(self.figures.engine, Engine):
            raise TypeError("a registry cannot await an AsyncEngine; mount asgi_application, or give an Engine")
        try:
            self.figures.get()
        except (SQLAlchemyError, FairQueueError) as error:
            yield from self.families(refused=error)
        else:
            yield from self.families(refused=None)

    def families(self, *, refused: Exception | None) -> Iterator[Metric]:
        """Yield the metrics. If the queues could not be read, *refused* is the error, and their metrics are missing."""
        if refused is not None:
            logger.warning("the figures of the queues cannot be read: %s: %s", type(refused).__name__, logged(refused))
        yield up_family(answered=refused is None)
        if refused is None:
            yield from queue_families(self.figures)
        yield from worker_families(self._workers)


class WorkerCollector(Collector):
    """The metrics of workers of this process. The collector asks no database.

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
