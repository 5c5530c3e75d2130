"""Spans and metrics of enqueues, handlers and settlements."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.otel.propagation import extracted, injected, links
from sqlalchemy_fairqueue.queue.instrumentation import installed
from sqlalchemy_fairqueue.values import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from sqlalchemy_fairqueue.queue.contexts import Context
    from sqlalchemy_fairqueue.values import Delivery, Enqueue

Relation = Literal["link", "child"]

_NAME = "sqlalchemy_fairqueue"
_SYSTEM = "fairqueue"
_LINKED = 128
"""Most links of a span."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)


def instrument(
    *,
    process: Relation = "link",
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace and measure the queues of this process from now on. Call it once, in producers and in workers.

    An enqueue is a ``send`` span, whose context goes with the message through the COMMIT, in its headers; a call of a
    handler is a ``process`` span; statements of a worker that settle are ``settle`` spans.

    Args:
        process: How a process span belongs to the enqueue: "link", a trace of its own with a link to it, or "child", in
            the trace of the enqueue. Give "child" where messages are handled soon after.
        tracer_provider: Default: the global one.
        meter_provider: Default: the global one.

    Raises:
        InvalidArgument: *process* is something else.
    """
    if process not in {"link", "child"}:
        raise InvalidArgument(f"process is {process!r:.80}; give 'link' or 'child'")
    version = metadata.version("sqlalchemy-fairqueue")
    installed.instrumentation = _OpenTelemetry(
        trace.get_tracer(_NAME, version, tracer_provider), metrics.get_meter(_NAME, version, meter_provider), process
    )


def uninstrument() -> None:
    """Trace and measure nothing any more."""
    installed.instrumentation = None


class _OpenTelemetry:
    """The instrumentation."""

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, process: Relation) -> None:
        self._tracer = tracer
        self._process = process
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that were enqueued; the transaction may roll back."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were given to a handler."
        )
        self._operation = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Time of a statement that settles.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )  # fmt: skip
        self._duration = meter.create_histogram(
            "messaging.process.duration", "s", "Time that a handler took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )  # fmt: skip
        self._wait = meter.create_histogram(
            "fairqueue.message.wait", "s", "Time from the enqueue of a message to the begin of its first attempt.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )  # fmt: skip
        self._attempt = meter.create_histogram(
            "fairqueue.message.attempt", "{attempt}", "Which attempt of its message an attempt is.",
            explicit_bucket_boundaries_advisory=(1, 2, 3, 5, 8, 13, 20),
        )  # fmt: skip
        self._settled = meter.create_counter(
            "fairqueue.message.settled", "{message}", "Deliveries that a worker settled, by how."
        )

    def before_enqueue(self, queue: str, messages: Sequence[Enqueue]) -> Sequence[Enqueue]:
        """A send span for the call, whose context all of its messages carry."""
        one = messages[0] if len(messages) == 1 else None
        attributes: dict[str, Any] = _common(queue, "send", "enqueue")
        if one is None:
            attributes["messaging.batch.message_count"] = len(messages)
        else:
            attributes |= {"fairqueue.channel": one.channel, "fairqueue.kind": one.kind}
        span = self._tracer.start_span(f"send {queue}", kind=SpanKind.PRODUCER, attributes=attributes)
        carried = injected(trace.set_span_in_context(span))
        span.end()
        self._sent.add(len(messages), _measured(queue, "enqueue"))
        return [_carrying(message, carried) for message in messages] if carried else messages

    def around(self, context: Context, proceed: Callable[[], Any]) -> Any:
        """A process span around a plain handler."""
        with self._processing(context) as span:
            return _seen(span, proceed())

    async def around_async(self, context: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        """A process span around an async handler."""
        with self._processing(context) as span:
            return _seen(span, await proceed())

    @contextmanager
    def _processing(self, context: Context) -> Iterator[Span]:
        delivery = context.delivery
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
        measured = _measured(delivery.queue, "handle")
        if delivery.attempt == 1:
            waited = (datetime.now(UTC) - delivery.enqueued_at).total_seconds()
            self._wait.record(max(0.0, waited), measured)
        self._attempt.record(delivery.attempt, measured)
        self._consumed.add(1, measured)
        began = perf_counter()
        with self._tracer.start_as_current_span(
            f"process {delivery.queue}",
            context=origin if child else None,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[] if child else links([delivery]),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
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
                span.set_status(Status(StatusCode.ERROR, f"{name}: {error}"))
                raise
            finally:
                self._duration.record(perf_counter() - began, measured)

    @contextmanager
    def settling(self, queue: str, verb: str, deliveries: Sequence[Delivery]) -> Iterator[None]:
        """A settle span around a statement."""
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
        """Count deliveries by how they were settled."""
        counts: dict[str, int] = {}
        for delivery in deliveries:
            counts[delivery.queue] = counts.get(delivery.queue, 0) + 1
        for queue, count in counts.items():
            self._settled.add(count, _measured(queue, verb))


def _common(queue: str, operation: str, name: str) -> dict[str, Any]:
    """The attributes of every span."""
    return {
        "messaging.system": _SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.type": operation,
        "messaging.operation.name": name,
    }


def _measured(queue: str, name: str) -> dict[str, str]:
    """The attributes of every measurement: none has tenants as its values."""
    return {"messaging.system": _SYSTEM, "messaging.destination.name": queue, "messaging.operation.name": name}


def _carrying(message: Enqueue, carried: dict[str, str]) -> Enqueue:
    """The message with the headers that carry a context, unless it has some of its own."""
    if message.headers is not None and "traceparent" in message.headers:
        return message
    return replace(message, headers={**(message.headers or {}), **carried})


def _seen(span: Span, outcome: Any) -> Any:
    """Say on the span how its handler wants its delivery to be settled."""
    if isinstance(outcome, Outcome):
        span.set_attribute("fairqueue.outcome", type(outcome).__name__.lower())
    return outcome
