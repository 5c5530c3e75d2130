"""The gauges of queues: each is exported to Prometheus, and to OpenTelemetry if it has a name there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy_fairqueue.figures.queues import QueueFigures

    Values = Mapping[str | float, float]

_QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure of each queue.

    Attributes:
        name: Its name in Prometheus; a figure whose name ends with ``_total`` only grows.
        get: Returns the figure of a queue; with a *label*, the figures by the label's values. None: no figure.
        label: The name of a label besides the queue's name; empty if there is none.
        otel: Its name in OpenTelemetry, where *unit* is its unit; empty if it is not exported there.
    """

    name: str
    meaning: str
    get: Callable[[QueueFigures], float | Values | None]
    label: str = ""
    otel: str = ""
    unit: str = ""

    def values(self, queue: QueueFigures) -> list[tuple[str | float | None, float]]:
        found = self.get(queue)
        if found is None:
            return []
        return [(None, found)] if isinstance(found, int | float) else list(found.items())


def _counts(*names: str) -> Callable[[QueueFigures], Values]:
    return lambda queue: {name: getattr(queue.stats, name) for name in names}


def _waits(queue: QueueFigures) -> Values:
    waits = [wait.total_seconds() for wait in queue.contention.waits] or [0.0] * len(_QUANTILES)
    return dict(zip(_QUANTILES, waits, strict=True))


GAUGES = (
    Gauge(
        "fairqueue_messages", "Messages by state: ready, scheduled, held, leased.",
        _counts("ready", "scheduled", "held", "leased"), "state", "fairqueue.messages", "{message}",
    ),
    Gauge(
        "fairqueue_ready_messages",
        "Ready messages: deliverable, what workers could take now; paused; limited, beyond a limit or a rate.",
        _counts("deliverable", "paused", "limited"), "state", "fairqueue.messages.ready", "{message}",
    ),
    Gauge(
        "fairqueue_oldest_ready_seconds", "How long the oldest ready message waits; 0: nothing is ready.",
        lambda queue: queue.oldest_ready.total_seconds() if queue.oldest_ready else 0.0,
        otel="fairqueue.oldest_ready", unit="s",
    ),
    Gauge(
        "fairqueue_channel_wait_seconds",
        "Quantiles over the waiting channels of how long each one's oldest ready message waits; 0: none waits.",
        _waits, "quantile", "fairqueue.channel.wait", "s",
    ),
    Gauge(
        "fairqueue_share_shortfall",
        "The most that a waiting channel lacks of the share that its weight entitles it to, 0 to 1.",
        lambda queue: queue.shortfall, otel="fairqueue.share.shortfall", unit="1",
    ),
    Gauge("fairqueue_channels", "Channels, idle ones too.", lambda queue: queue.stats.channels),
    Gauge(
        "fairqueue_waiting_channels", "Channels with ready messages.", lambda queue: queue.contention.waiting,
        otel="fairqueue.channels.waiting", unit="{channel}",
    ),
    Gauge(
        "fairqueue_dead_letters", "Dead letters.", lambda queue: queue.stats.dead,
        otel="fairqueue.dead_letters", unit="{message}",
    ),
    Gauge(
        "fairqueue_consumers", "Consumers with a lease that has not expired.", lambda queue: queue.stats.consumers,
        otel="fairqueue.consumers", unit="{consumer}",
    ),
    Gauge("fairqueue_unheard_signals", "Signals that no dequeue has applied yet.", lambda queue: queue.stats.signals),
    Gauge("fairqueue_paused", "1 if the queue is paused, else 0.", lambda queue: int(bool(queue.stats.paused_at))),
    Gauge(
        "fairqueue_limit", "Most messages that consumers may hold at once; only of queues with a limit.",
        lambda queue: queue.stats.max_concurrency,
    ),
    Gauge(
        "fairqueue_limit_used", "Messages that count against that limit; only of queues with a limit.",
        lambda queue: None if queue.stats.max_concurrency is None else queue.stats.current_concurrency or 0,
    ),
    Gauge(
        "fairqueue_dropped_messages_total", "Messages dropped because their channel was full.",
        lambda queue: queue.stats.dropped,
    ),
)  # fmt: skip
