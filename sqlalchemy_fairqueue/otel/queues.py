"""Gauges of queues, observed when metrics are exported."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.figures import SharedFigures
from sqlalchemy_fairqueue.queue.base import schema_of
from sqlalchemy_fairqueue.texts import logged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import MeterProvider
    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.figures import QueueFigures
    from sqlalchemy_fairqueue.queue import Queue

logger = logging.getLogger(__name__)

_STATES = ("ready", "scheduled", "held", "leased")
_READY_STATES = ("deliverable", "paused", "limited")
_QUANTILES = (0.5, 0.9, 0.99, 1.0)

_Values = dict[tuple[str, str | float] | None, float]
_GAUGES: dict[tuple[str, str, str], Callable[[QueueFigures], _Values]] = {
    ("fairqueue.messages", "{message}", "Messages by state."): lambda queue: {
        ("state", state): getattr(queue.stats, state) for state in _STATES
    },
    (
        "fairqueue.messages.ready",
        "{message}",
        "Ready messages: deliverable, what workers could take now; paused; limited, beyond a limit or a rate.",
    ): lambda queue: {("state", state): getattr(queue.stats, state) for state in _READY_STATES},
    (
        "fairqueue.channel.wait",
        "s",
        "Quantiles over the waiting channels of how long each one's oldest ready message waits; 0: none waits.",
    ): lambda queue: {
        ("quantile", quantile): queue.contention.waits[number].total_seconds() if queue.contention.waits else 0.0
        for number, quantile in enumerate(_QUANTILES)
    },
    (
        "fairqueue.share.shortfall",
        "1",
        "The most that a waiting channel lacks of the share that its weight entitles it to, 0 to 1.",
    ): lambda queue: {None: queue.shortfall},
    ("fairqueue.oldest_ready", "s", "How long the oldest ready message waits."): lambda queue: {
        None: queue.oldest_ready.total_seconds() if queue.oldest_ready else 0.0
    },
    ("fairqueue.channels.waiting", "{channel}", "Channels with ready messages."): lambda queue: {
        None: queue.contention.waiting
    },
    ("fairqueue.dead_letters", "{message}", "Dead letters."): lambda queue: {None: queue.stats.dead},
    ("fairqueue.consumers", "{consumer}", "Consumers with a lease that has not expired."): lambda queue: {
        None: queue.stats.consumers
    },
}


def observe_queues(
    engine: Engine, *queues: Queue, schema: str | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Export gauges of queues: backlog, oldest message, waiting channels and their waits, dead letters and consumers.

    All processes see the same queues: call it in one of them. The database is asked once an export; if it does not
    answer, the gauges are left out.

    Args:
        engine: Connects to the database, as a role that is granted ``monitor``.
        queues: The queues. Default: all of the installation.
        schema: The schema of the installation. None: the queues' own, or where the search_path finds it.
        meter_provider: Default: the global one.

    Example:
        >>> reader = InMemoryMetricReader()  # as a rule a PeriodicExportingMetricReader
        >>> observe_queues(engine, queue, meter_provider=MeterProvider([reader]))
        >>> [metric.name for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics][:2]
        ['fairqueue.messages', 'fairqueue.messages.ready']
    """
    found = schema_of(queues)
    schema = found if schema is None else schema
    figures = SharedFigures(engine, queues or None, schema=schema)
    meter = metrics.get_meter("sqlalchemy_fairqueue", meter_provider=meter_provider)
    for (name, unit, meaning), values in _GAUGES.items():
        meter.create_observable_gauge(name, [_observer(figures, values)], unit, meaning)


def _observer(
    figures: SharedFigures, values: Callable[[QueueFigures], _Values]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        try:
            queues = figures.get().queues.values()
        except (SQLAlchemyError, FairQueueError) as error:
            logger.warning("the figures of the queues cannot be read: %s: %s", type(error).__name__, logged(error))
            return []
        return [
            Observation(value, {"messaging.destination.name": queue.name} | dict([each] if each else []))
            for queue in queues
            for each, value in values(queue).items()
        ]

    return observe
