"""The metrics: their names, meanings and labels, and their values from figures."""

from __future__ import annotations

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

from sqlalchemy_fairqueue.worker.telemetry import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from sqlalchemy_fairqueue.figures import QueueFigures, SharedFigures
    from sqlalchemy_fairqueue.worker import AsyncWorker, Worker
    from sqlalchemy_fairqueue.worker.telemetry import AttemptDistributions, Bucket, Distribution

_NAMED = 80
"""Characters of a channel's name in an exemplar, which may have 128 with its other labels."""
_QUANTILES = ("0.5", "0.9", "0.99", "1")


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric.

    Attributes:
        name: Its name, that of a counter with ``_total``.
        meaning: Its value, in a sentence.
        labels: The names of its labels.
        suffixes: What the names of its series end with, of histograms.

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
        """The metric without values."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        return kind(self.name.removesuffix("_total"), self.meaning, labels=self.labels)


Values = dict[tuple[str, ...], float]

UP = MetricDefinition("fairqueue_up", "1 if the database answered, else 0.")
READ_SECONDS = MetricDefinition("fairqueue_read_seconds", "How long it took to read the figures of the queues.")

QUEUE_METRICS: dict[MetricDefinition, Callable[[QueueFigures], Values]] = {
    MetricDefinition(
        "fairqueue_messages", "Messages by state: ready, scheduled, held, leased.", ("queue", "state")
    ): lambda queue: {(state,): getattr(queue.stats, state) for state in ("ready", "scheduled", "held", "leased")},
    MetricDefinition(
        "fairqueue_ready_messages",
        "Ready messages: deliverable, what workers could take now; paused; limited, beyond a limit or a rate.",
        ("queue", "state"),
    ): lambda queue: {(state,): getattr(queue.stats, state) for state in ("deliverable", "paused", "limited")},
    MetricDefinition(
        "fairqueue_oldest_ready_seconds", "How long the oldest ready message waits; 0: nothing is ready.", ("queue",)
    ): lambda queue: {(): queue.oldest_ready.total_seconds() if queue.oldest_ready else 0.0},
    MetricDefinition(
        "fairqueue_channel_wait_seconds",
        "Quantiles over the waiting channels of how long each one's oldest ready message waits; 0: none waits.",
        ("queue", "quantile"),
    ): lambda queue: {
        (quantile,): queue.contention.waits[number].total_seconds() if queue.contention.waits else 0.0
        for number, quantile in enumerate(_QUANTILES)
    },
    MetricDefinition(
        "fairqueue_share_shortfall",
        "The most that a waiting channel lacks of the share that its weight entitles it to, 0 to 1.",
        ("queue",),
    ): lambda queue: {(): queue.shortfall},
    MetricDefinition("fairqueue_channels", "Channels, idle ones too.", ("queue",)): lambda queue: {
        (): queue.stats.channels
    },
    MetricDefinition("fairqueue_waiting_channels", "Channels with ready messages.", ("queue",)): lambda queue: {
        (): queue.contention.waiting
    },
    MetricDefinition("fairqueue_dead_letters", "Dead letters.", ("queue",)): lambda queue: {(): queue.stats.dead},
    MetricDefinition("fairqueue_consumers", "Consumers with a lease that has not expired.", ("queue",)): lambda queue: {
        (): queue.stats.consumers
    },
    MetricDefinition(
        "fairqueue_unheard_signals", "Signals that no dequeue has applied yet.", ("queue",)
    ): lambda queue: {(): queue.stats.signals},
    MetricDefinition("fairqueue_paused", "1 if the queue is paused, else 0.", ("queue",)): lambda queue: {
        (): float(queue.stats.paused_at is not None)
    },
    MetricDefinition(
        "fairqueue_limit", "Most messages that consumers may hold at once; only of queues with a limit.", ("queue",)
    ): lambda queue: {(): queue.stats.max_concurrency} if queue.stats.max_concurrency is not None else {},
    MetricDefinition(
        "fairqueue_limit_used", "Messages that count against that limit; only of queues with a limit.", ("queue",)
    ): lambda queue: {(): queue.stats.current_concurrency or 0} if queue.stats.max_concurrency is not None else {},
    MetricDefinition(
        "fairqueue_dropped_messages_total", "Messages dropped because their channel was full.", ("queue",)
    ): lambda queue: {(): queue.stats.dropped},
}
"""The metrics of each queue, each with its values by the labels after the queue's."""

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
    UP, READ_SECONDS, *QUEUE_METRICS, COMPLETED, LONGEST_WAITS, WORKER_EVENTS, WORKER_HUNG, WORKER_WAITS,
    WORKER_SERVICES, WORKER_ATTEMPTS,
)  # fmt: skip
"""All metrics."""


def queue_families(figures: SharedFigures) -> Iterator[Metric]:
    latest = figures.latest
    queues = latest.queues.values() if latest else ()
    took = READ_SECONDS.family()
    took.add_metric([], figures.took.total_seconds())
    yield took
    for definition, values in QUEUE_METRICS.items():
        family = definition.family()
        for queue in queues:
            for labels, value in values(queue).items():
                family.add_metric([queue.name, *labels], value)
        yield family
    completed = COMPLETED.family()
    for queue in queues:
        if queue.records_history:
            completed.add_metric([queue.name], figures.completed(queue.name))
    yield completed
    yield _longest_waits(queues)


def _longest_waits(queues: Iterable[QueueFigures]) -> Metric:
    """The tenants that wait longest, as counts and exemplars: who they are is in no label."""
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
    distributions: tuple[tuple[MetricDefinition, Callable[[AttemptDistributions], Distribution]], ...] = (
        (WORKER_WAITS, lambda attempts: attempts.wait),
        (WORKER_SERVICES, lambda attempts: attempts.service),
        (WORKER_ATTEMPTS, lambda attempts: attempts.attempt),
    )
    for definition, distribution in distributions:
        family = HistogramMetricFamily(definition.name, definition.meaning, labels=definition.labels)
        for worker in workers:
            for queue in worker.stats.queues:
                found = distribution(worker.stats.attempts(queue))
                buckets = [_bucket(one) for one in found.buckets]
                family.add_metric([worker.name, queue], buckets, found.sum)
        yield family


def _bucket(one: Bucket) -> tuple[str, float] | tuple[str, float, Exemplar]:
    if one.example is None:
        return _le(one.bound), one.count
    exemplar = Exemplar({"channel": one.example.channel[:_NAMED]}, one.example.value, one.example.at)
    return _le(one.bound), one.count, exemplar


def _le(bound: float) -> str:
    """An upper bound as the label of a bucket."""
    return "+Inf" if isinf(bound) else str(bound)
