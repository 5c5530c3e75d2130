"""Makes spans and metrics of enqueues, handlers and settlements, and gauges of queues."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Literal

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import SpanKind, Status, StatusCode, TraceFlags, get_current_span
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_fairqueue.errors import FairQueueError, InvalidArgument
from sqlalchemy_fairqueue.figures.gauges import GAUGES
from sqlalchemy_fairqueue.figures.shared import SharedFigures
from sqlalchemy_fairqueue.otel.propagation import extracted, injected, links
from sqlalchemy_fairqueue.queue.base import schema_of
from sqlalchemy_fairqueue.queue.instrumentation import installed
from sqlalchemy_fairqueue.texts import library_version, logged
from sqlalchemy_fairqueue.values.outcomes import Bury, Outcome, Release, Retry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from sqlalchemy_fairqueue.figures.gauges import Gauge
    from sqlalchemy_fairqueue.figures.queues import QueueFigures
    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.instrumentation import Handled
    from sqlalchemy_fairqueue.values.messages import Delivery, Enqueue

logger = logging.getLogger(__name__)
# After a reading that failed, gauges do not ask again for this many seconds. The next export comes much later.
_FAILED = 1.0

Relation = Literal["link", "child"]
Sending = Literal["span", "context"]

_NAME = "sqlalchemy_fairqueue"
_SYSTEM = "fairqueue"
_LINKED = 128
"""The most links of a span: as many as the SDK keeps by default."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)


def instrument(
    *,
    process: Relation = "link",
    send: Sending = "context",
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace and measure the queues of this process from now on. Call this once in each producer and worker.

    The headers of a message carry the context of a span, which connects the handling of the message with its enqueue.
    Each call of a handler makes a span whose name begins with "process". Each statement by which a worker settles
    messages makes a span whose name begins with "settle".

    Args:
        process: How the span of a handler's call is connected with the enqueue. "link": the span begins a trace of its
            own, and has a link to the enqueue. "child": the span belongs to the trace of the enqueue. Give "child" if
            messages are handled soon after their enqueue.
        send: Which context the messages carry. "context": the context of the current span, such as the span of a
            request; without a current span, messages carry no context. "span": each call that enqueues makes a span
            whose name begins with "send", and its messages carry the context of that span. If the current trace is not
            sampled, the call makes no span, and its messages carry the context of the current span. "span" takes
            several times as long as "context".
        tracer_provider: Default: the global one.
        meter_provider: Default: the global one.

    Raises:
        InvalidArgument: *process* or *send* has another value.

    Example:
        >>> instrument(tracer_provider=TracerProvider(), meter_provider=MeterProvider())
        >>> with TracerProvider().get_tracer("shop").start_as_current_span("upload"):
        ...     message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
        >>> print(queue.message(engine, message_id).headers)
        {"traceparent": "00-..."}
        >>> uninstrument()
    """
    if process not in {"link", "child"}:
        raise InvalidArgument(f"process is {process!r:.80}; give 'link' or 'child'")
    if send not in {"span", "context"}:
        raise InvalidArgument(f"send is {send!r:.80}; give 'span' or 'context'")
    version = library_version() or ""
    installed.instrumentation = _OpenTelemetry(
        trace.get_tracer(_NAME, version, tracer_provider),
        metrics.get_meter(_NAME, version, meter_provider),
        process,
        send,
    )


def uninstrument() -> None:
    """Stop tracing and measuring queues.

    See Also:
        :func:`instrument`
    """
    installed.instrumentation = None


class _OpenTelemetry:
    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, process: Relation, send: Sending) -> None:
        self._tracer = tracer
        self._process = process
        self._makes_spans = send == "span"
        # Counted here and observed at each export, since to add to a counter of the SDK takes ten times as long.
        self._sent: Counter[str] = Counter()
        self._lock = Lock()
        meter.create_observable_counter(
            "messaging.client.sent.messages",
            [self._observe_sent],
            "{message}",
            "Messages that were enqueued; the transaction may roll back.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were given to a handler."
        )
        self._settled = meter.create_counter(
            "fairqueue.message.settled", "{message}", "Deliveries that a worker settled or lost, by how."
        )
        timer = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=_SECONDS)
        self._operation = timer("messaging.client.operation.duration", description="Time of a statement that settles.")
        self._duration = timer("messaging.process.duration", description="Time that a handler took.")
        self._wait = timer(
            "fairqueue.message.wait",
            description="Time from the enqueue of a message to the begin of its first attempt.",
        )
        self._attempt = meter.create_histogram(
            "fairqueue.message.attempt", "{attempt}", "Which attempt of its message an attempt is.",
            explicit_bucket_boundaries_advisory=(1, 2, 3, 5, 8, 13, 20),
        )  # fmt: skip

    def before_enqueue(self, queue: str, messages: Sequence[Enqueue]) -> Mapping[str, str]:
        with self._lock:
            self._sent[queue] += len(messages)
        current = get_current_span().get_span_context()
        # If the sampler of this process left out the current trace, it would leave out a send span of that trace, too.
        if not self._makes_spans or _is_sampled_out(current):
            return injected(current)
        attributes: dict[str, Any] = _common(queue, "send", "enqueue")
        if len(messages) == 1:
            attributes["fairqueue.channel"] = messages[0].channel
            attributes["fairqueue.kind"] = messages[0].kind
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(f"send {queue}", kind=SpanKind.PRODUCER, attributes=attributes)
        span.end()
        return injected(span.get_span_context())

    def _observe_sent(self, _: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            return [Observation(count, _measured(queue, "enqueue")) for queue, count in self._sent.items()]

    def around(self, context: Handled, proceed: Callable[[], Any]) -> Any:
        with self._processing(context) as span:
            return _seen(span, proceed())

    async def around_async(self, context: Handled, proceed: Callable[[], Awaitable[Any]]) -> Any:
        with self._processing(context) as span:
            return _seen(span, await proceed())

    @contextmanager
    def _processing(self, context: Handled) -> Iterator[Span]:
        deliveries = context.deliveries
        delivery = deliveries[0]
        origin = extracted(delivery.headers)
        child = self._process == "child" and origin is not None
        attributes = _common(delivery.queue, "process", "handle") | {
            "messaging.message.id": str(delivery.message_id),
            "messaging.message.body.size": len(delivery.content),
            "fairqueue.channel": delivery.channel,
            "fairqueue.kind": delivery.kind,
            "fairqueue.attempt": delivery.attempt,
            "fairqueue.consumer": delivery.lease.consumer,
        }
        if len(deliveries) > 1:
            attributes["messaging.batch.message_count"] = len(deliveries)
        measured = _measured(delivery.queue, "handle")
        now = datetime.now(UTC)
        began = perf_counter()
        with self._tracer.start_as_current_span(
            f"process {delivery.queue}", context=origin if child else None, kind=SpanKind.CONSUMER,
            attributes=attributes, links=links(deliveries[child:][:_LINKED]), record_exception=False,
            set_status_on_exception=False,
        ) as span:  # fmt: skip
            # Recorded within the span, so that an exemplar leads to the span, which names the tenant.
            for one in deliveries:
                if one.attempt == 1:
                    self._wait.record(max(0.0, (now - one.enqueued_at).total_seconds()), measured)
                self._attempt.record(one.attempt, measured)
            self._consumed.add(len(deliveries), measured)
            try:
                yield span
            except Outcome as outcome:
                _seen(span, outcome)
                raise
            except BaseException as error:
                name = type(error).__qualname__
                measured["error.type"] = name
                span.record_exception(error)
                span.set_attribute("error.type", name)
                span.set_status(Status(StatusCode.ERROR, f"{name}: {logged(error)}"))
                raise
            finally:
                self._duration.record(perf_counter() - began, measured)

    @contextmanager
    def settling(self, queue: str, verb: str, deliveries: Sequence[Delivery]) -> Iterator[None]:
        attributes = _common(queue, "settle", verb) | {"messaging.batch.message_count": len(deliveries)}
        measured = _measured(queue, verb)
        began = perf_counter()
        try:
            with self._tracer.start_as_current_span(
                f"settle {queue}", kind=SpanKind.CLIENT, attributes=attributes, links=links(deliveries[:_LINKED])
            ):
                yield
        except BaseException as error:
            measured["error.type"] = type(error).__qualname__
            raise
        finally:
            self._operation.record(perf_counter() - began, measured)

    def settled(self, verb: str, deliveries: Sequence[Delivery]) -> None:
        for queue, count in Counter(delivery.queue for delivery in deliveries).items():
            self._settled.add(count, _measured(queue, verb))


def _is_sampled_out(current: SpanContext) -> bool:
    return current.is_valid and not current.is_remote and not current.trace_flags & TraceFlags.SAMPLED


def _common(queue: str, operation: str, name: str) -> dict[str, Any]:
    return _measured(queue, name) | {"messaging.operation.type": operation}


def _measured(queue: str, name: str) -> dict[str, str]:
    return {"messaging.system": _SYSTEM, "messaging.destination.name": queue, "messaging.operation.name": name}


def _seen(span: Span, outcome: Any) -> Any:
    returned = outcome if isinstance(outcome, type) else type(outcome)
    for kind in (Retry, Release, Bury):
        # A subclass of the application counts as the library's class.
        if issubclass(returned, kind):
            span.set_attribute("fairqueue.outcome", kind.__name__.lower())
    return outcome


def observe_queues(
    engine: Engine, *queues: Queue, schema: str | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Export gauges of queues, such as messages by state, the oldest wait, waiting channels and dead letters.

    All processes see the same queues, so call this in one process. An export asks the database at most once for all
    gauges. If the database does not answer, the gauges are left out.

    Args:
        engine: Connects to the database, as a role that is granted ``monitor``.
        queues: The queues. Default: all of the installation.
        schema: The schema of the installation. Default: that of the queues, or the search_path finds it.
        meter_provider: Default: the global one.

    Example:
        >>> reader = InMemoryMetricReader()  # as a rule a PeriodicExportingMetricReader
        >>> observe_queues(engine, queue, meter_provider=MeterProvider([reader]))
        >>> [metric.name for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics][:2]
        ['fairqueue.messages', 'fairqueue.messages.ready']
    """
    if not isinstance(engine, Engine):
        raise InvalidArgument(f"an export cannot await {type(engine).__name__}; give an Engine")
    found = schema_of(queues)
    schema = found if schema is None else schema
    figures = SharedFigures(engine, queues or None, schema=schema)
    meter = metrics.get_meter("sqlalchemy_fairqueue", meter_provider=meter_provider)
    read = _reader(figures)
    for gauge in GAUGES:
        if gauge.otel:
            meter.create_observable_gauge(gauge.otel, [_observer(read, gauge)], gauge.unit, gauge.meaning)


def _reader(figures: SharedFigures) -> Callable[[], Iterable[QueueFigures]]:
    """Return a function that reads the queues for all gauges, at most once in an export, even if the reading fails."""
    again_at = 0.0

    def read() -> Iterable[QueueFigures]:
        nonlocal again_at
        if monotonic() < again_at:
            return ()
        try:
            return figures.get().queues.values()
        except (SQLAlchemyError, FairQueueError) as error:
            logger.warning("the figures of the queues cannot be read: %s: %s", type(error).__name__, logged(error))
            again_at = monotonic() + _FAILED
            return ()

    return read


def _observer(
    read: Callable[[], Iterable[QueueFigures]], gauge: Gauge
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(value, {"messaging.destination.name": queue.name} | ({gauge.label: label} if label else {}))
            for queue in read()
            for label, value in gauge.values(queue)
        ]

    return observe
