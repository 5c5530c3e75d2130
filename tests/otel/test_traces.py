"""A trace goes from the enqueue through the COMMIT to the handler, and its metrics have no tenants."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags, TraceState
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import (
    AsyncWorker,
    Context,
    Delivery,
    Enqueue,
    InvalidArgument,
    Queue,
    Retry,
    RetryPolicy,
    Worker,
)
from sqlalchemy_fairqueue.otel import instrument, observe_queues, uninstrument
from sqlalchemy_fairqueue.values.messages import GROUP_HEADER
from sqlalchemy_fairqueue.worker.timings import Prefetch
from tests.cli.messages import ODD_NAMES
from tests.fixtures.database import Database
from tests.worker.helpers import until


class Telemetry:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider(metric_readers=[self.reader])

    def spans(self, name: str) -> list[ReadableSpan]:
        """The spans of a name, in the order of their begin."""
        found = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)

    def points(self) -> dict[str, list[Any]]:
        """The points of each metric."""
        data: Any = self.reader.get_metrics_data()
        found = [
            metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
        ]
        return {metric.name: list(metric.data.data_points) for metric in found}


@pytest.fixture
def telemetry() -> Iterator[Callable[..., Telemetry]]:
    """Instrument this process: ``telemetry(process="child")``."""

    def begin(**options: Any) -> Telemetry:
        made = Telemetry()
        instrument(tracer_provider=made.tracers, meter_provider=made.meters, **options)
        return made

    yield begin
    uninstrument()


def _enqueue(engine: Engine, queue: Queue, *channels: str, **fields: Any) -> None:
    with Session(engine) as session, session.begin():
        queue.enqueue_many(session, [Enqueue(channel=channel, payload=1, **fields) for channel in channels])


def _ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


@pytest.mark.parametrize("process", ["link", "child"])
def test_from_the_request_to_the_handler(telemetry: Callable[..., Telemetry], engine: Engine, process: str) -> None:
    """A request's span is the parent of the send, which the process span links to, or has for its parent."""
    found = telemetry(process=process, send="span")
    queue = Queue("documents")
    inside: list[Any] = []

    @queue.handler("parse")
    def parse(delivery: Delivery) -> None:
        inside.append((trace.get_current_span().get_span_context(), delivery.headers))

    with found.tracers.get_tracer("app").start_as_current_span("POST /uploads"):
        _enqueue(engine, queue, "customer-7", kind="parse", headers={"mine": 1})
    Worker(engine, queue, concurrency=1).run(drain=True)

    [request], [send], [handled] = (
        found.spans("POST /uploads"),
        found.spans("send documents"),
        found.spans("process documents"),
    )
    assert send.parent is not None
    assert (send.parent.span_id, send.kind) == (_ids(request)[1], SpanKind.PRODUCER)
    assert handled.kind is SpanKind.CONSUMER
    [(context, headers)] = inside
    assert (context.trace_id, context.span_id) == _ids(handled)
    assert headers["mine"] == 1
    linked = [(link.context.trace_id, link.context.span_id) for link in handled.links]
    if process == "child":
        assert handled.parent is not None
        assert (handled.parent.trace_id, handled.parent.span_id, linked) == (*_ids(send), [])
    else:
        assert (handled.parent, linked) == (None, [_ids(send)])
    attributes = dict(handled.attributes or {})
    assert attributes["messaging.system"] == "fairqueue"
    assert attributes["messaging.destination.name"] == "documents"
    assert attributes["messaging.operation.type"] == "process"
    assert (attributes["fairqueue.channel"], attributes["fairqueue.attempt"]) == ("customer-7", 1)
    [settle] = found.spans("settle documents")
    assert [(link.context.trace_id, link.context.span_id) for link in settle.links] == [_ids(send)]


def test_retries_and_failures(telemetry: Callable[..., Telemetry], engine: Engine) -> None:
    """Each attempt is a span; a failure is its status, an outcome is none."""
    found = telemetry(send="span")
    queue = Queue("documents")

    @queue.handler("parse", retry=RetryPolicy(first=timedelta(microseconds=1)))
    def parse(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise ValueError("no such page")
        if delivery.attempt == 2:
            raise Retry(delay=timedelta(0))

    _enqueue(engine, queue, "customer-7", kind="parse")
    Worker(engine, queue, concurrency=1).run(drain=True)
    spans = found.spans("process documents")
    assert [(span.attributes or {})["fairqueue.attempt"] for span in spans] == [1, 2, 3]
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR, StatusCode.UNSET, StatusCode.UNSET]
    assert (spans[0].attributes or {})["error.type"] == "ValueError"
    assert (spans[1].attributes or {})["fairqueue.outcome"] == "retry"
    assert {link.context.span_id for span in spans for link in span.links} == {
        _ids(found.spans("send documents")[0])[1]
    }
    settled = {
        point.attributes["messaging.operation.name"]: point.value
        for point in found.points()["fairqueue.message.settled"]
    }
    assert settled == {"retry": 2, "complete": 1}


def test_prefetched_messages_have_no_spans(
    telemetry: Callable[..., Telemetry], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that stops gives back what it has prefetched without a span: nothing was done for it."""
    # However slow the machine is, some are taken ahead, and wait.
    monkeypatch.setattr(Prefetch, "ahead", lambda *_: 2)
    found = telemetry()
    queue = Queue("documents")

    begun: list[Delivery] = []

    @queue.handler("parse")
    def parse(delivery: Delivery, context: Context) -> None:
        begun.append(delivery)
        until(lambda: context.stopping, "the worker stops")

    _enqueue(engine, queue, *"abc", kind="parse")
    with Worker(engine, queue, concurrency=1) as worker:
        until(lambda: begun and worker.stats.taken > 1, "some are prefetched")
    taken, handled = worker.stats.taken, len(found.spans("process documents"))
    settles: list[dict[str, Any]] = [dict(span.attributes or {}) for span in found.spans("settle documents")]
    settled = {
        point.attributes["messaging.operation.name"]: point.value
        for point in found.points()["fairqueue.message.settled"]
    }
    assert handled == 1
    assert settled["release"] == taken - handled > 0
    assert [(one["messaging.operation.name"]) for one in settles] == ["complete"] * len(settles)
    assert sum(one["messaging.batch.message_count"] for one in settles) == handled


async def test_async_handlers(telemetry: Callable[..., Telemetry], async_engine: AsyncEngine) -> None:
    """An async handler has its span too."""
    found = telemetry(process="child", send="span")
    queue = Queue("documents")
    inside: list[int] = []

    @queue.handler("parse")
    async def parse(_: Delivery) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)

    await queue.enqueue(async_engine, channel="customer-7", payload=1, kind="parse")
    await AsyncWorker(async_engine, queue, concurrency=1).run(drain=True)
    [span] = found.spans("process documents")
    assert inside == [_ids(span)[1]]
    assert span.parent is not None
    assert span.parent.span_id == _ids(found.spans("send documents")[0])[1]


def test_many_messages_are_one_send(telemetry: Callable[..., Telemetry], engine: Engine) -> None:
    """A bulk enqueue is one span that all of its messages carry; one with a context of its own keeps that."""
    found = telemetry(send="span")
    queue = Queue("documents")
    own = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    with Session(engine) as session, session.begin():
        queue.enqueue_many(
            session,
            [
                Enqueue(channel="a", payload=1),
                Enqueue(channel="b", payload=1),
                Enqueue(channel="c", payload=1, headers=own),
            ],
        )
    [send] = found.spans("send documents")
    assert (send.attributes or {})["messaging.batch.message_count"] == 3
    headers = {delivery.channel: delivery.headers for delivery in queue.dequeue(engine, limit=3)}
    assert headers["c"] == own
    assert headers["a"] == headers["b"]
    assert format(_ids(send)[1], "016x") in headers["a"]["traceparent"]  # type: ignore[index]


def test_metrics(telemetry: Callable[..., Telemetry], engine: Engine) -> None:
    """Metrics count and time the work by queue, and no attribute has tenants as its values."""
    found = telemetry()
    queue = Queue("documents")
    queue.handler("parse")(lambda _: None)
    _enqueue(engine, queue, *ODD_NAMES, "a", kind="parse")
    observe_queues(engine, queue, meter_provider=found.meters)
    assert {point.attributes["state"]: point.value for point in found.points()["fairqueue.messages"]}["ready"] == 8
    waits = {point.attributes["quantile"]: point.value for point in found.points()["fairqueue.channel.wait"]}
    assert list(waits) == [0.5, 0.9, 0.99, 1.0]
    assert 0 < waits[0.5] <= waits[0.9] <= waits[0.99] <= waits[1.0]
    Worker(engine, queue, concurrency=2).run(drain=True)
    points = found.points()
    [sent] = points["messaging.client.sent.messages"]
    [consumed] = points["messaging.client.consumed.messages"]
    [waited] = points["fairqueue.message.wait"]
    [took] = points["messaging.process.duration"]
    assert (sent.value, consumed.value, waited.count, took.count) == (8, 8, 8, 8)
    values = {value for some in points.values() for point in some for value in point.attributes.values()}
    own = {"fairqueue", "documents", "enqueue", "handle", "complete", "ready", "scheduled", "held", "leased"}
    own |= {"deliverable", "paused", "limited"}
    assert values <= own | set(waits)


def test_gauges_of_a_database_that_is_away(
    telemetry: Callable[..., Telemetry], caplog: pytest.LogCaptureFixture
) -> None:
    """An export asks once for all of its gauges, and leaves them out."""
    engine, asked = create_engine("postgresql+psycopg://127.0.0.1:1/nothing"), []
    event.listen(engine, "do_connect", lambda *_: asked.append(True))
    found = telemetry()
    observe_queues(engine, Queue("documents"), meter_provider=found.meters)
    found.reader.get_metrics_data()
    assert (len(asked), caplog.text.count("the figures of the queues cannot be read")) == (1, 1)


@pytest.mark.parametrize("settles", [True, False], ids=["by the handler", "by the worker"])
def test_lost_leases_are_counted(
    telemetry: Callable[..., Telemetry], engine: Engine, database: Database, *, settles: bool
) -> None:
    """A delivery that somebody else has is counted as lost, and as nothing else."""
    found = telemetry()
    queue = Queue("documents")

    @queue.handler("parse")
    def parse(delivery: Delivery) -> None:
        database.execute("update fq_message set lease_id = 4711, deliveries = deliveries + 1")
        if settles:
            queue.complete(engine, delivery)

    _enqueue(engine, queue, "a", kind="parse")
    with Worker(engine, queue, concurrency=1, housekeeping=False) as worker:
        until(lambda: worker.stats.lost, "it is counted")
    counted = {
        point.attributes["messaging.operation.name"]: point.value
        for point in found.points()["fairqueue.message.settled"]
    }
    assert counted == {"lost": 1}


def test_exemplars_lead_to_tenants(telemetry: Callable[..., Telemetry], engine: Engine) -> None:
    """An exemplar of a wait or a duration leads to the span of the handler, which names the tenant."""
    found = telemetry()
    queue = Queue("documents")
    queue.handler("parse")(lambda _: None)
    _enqueue(engine, queue, "a", "b", kind="parse")
    Worker(engine, queue, concurrency=1).run(drain=True)
    tenants = {
        (span.context.trace_id, span.context.span_id): (span.attributes or {})["fairqueue.channel"]
        for span in found.spans("process documents")
        if span.context
    }
    points = found.points()
    for name in ("fairqueue.message.wait", "fairqueue.message.attempt", "messaging.process.duration"):
        exemplars = [one for point in points[name] for one in point.exemplars]
        assert exemplars, name
        assert {tenants[one.trace_id, one.span_id] for one in exemplars} <= {"a", "b"}


def test_bad_contexts(telemetry: Callable[..., Telemetry], engine: Engine) -> None:
    """Headers that carry no context, or a broken one, cost nothing but the link."""
    found = telemetry(process="child")
    queue = Queue("documents")
    queue.handler("parse")(lambda _: None)
    for broken in ("", "00-zz-1-01", 7, None, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"):
        _enqueue(engine, queue, "a", kind="parse", headers={"traceparent": broken, "tracestate": "\x1b="})
    Worker(engine, queue, concurrency=1).run(drain=True)
    assert [(span.parent, len(span.links)) for span in found.spans("process documents")] == [(None, 0)] * 5


def test_headers_as_long_as_allowed(telemetry: Callable[..., Telemetry], engine: Engine) -> None:
    """Headers that fit without a trace fit with one: long ones carry none, short ones do."""
    telemetry(process="child", send="span")
    queue = Queue("documents")
    longest = {"a": "x" * (65_536 - len('{"a": ""}'))}
    for headers in (longest, {"a": "x"}):
        _enqueue(engine, queue, "a", kind="parse", headers=headers)
    long, short = [json.loads(one.headers or "") for one in queue.messages(engine)]
    assert long == longest
    assert set(short) == {"a", "traceparent"}


def test_without_it_nothing_is_added(engine: Engine) -> None:
    """Where it is not installed, messages have the headers that they were given."""
    queue = Queue("documents")
    _enqueue(engine, queue, "a")
    assert queue.dequeue(engine, limit=1)[0].headers is None


def test_a_sampled_out_request(telemetry: Callable[..., Telemetry], engine: Engine) -> None:
    """In a trace that the sampler left out, nothing is recorded, and messages say that it was left out."""
    found = telemetry(process="child", send="span")
    queue = Queue("documents")
    queue.handler("parse")(lambda _: None)
    left_out = TracerProvider(sampler=ALWAYS_OFF)
    with left_out.get_tracer("app").start_as_current_span("POST /uploads") as request:
        _enqueue(engine, queue, "a", kind="parse")
    context = request.get_span_context()
    [carried] = queue.messages(engine)
    sent = json.loads(carried.headers or "")["traceparent"]
    assert sent.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert int(sent[-2:], 16) & TraceFlags.SAMPLED == 0
    Worker(engine, queue, concurrency=1).run(drain=True)
    assert found.spans("send documents") == found.spans("process documents") == []
    assert found.points()["messaging.client.sent.messages"][0].value == 1


def test_context_without_a_span(telemetry: Callable[..., Telemetry], engine: Engine) -> None:
    """Unless spans are requested, messages carry the request's own context with its state; there is no send span."""
    found = telemetry(process="child")
    queue = Queue("documents")
    queue.handler("parse")(lambda _: None)
    origin = SpanContext(0x1, 0x2, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("vendor", "x")]))
    with trace.use_span(trace.NonRecordingSpan(origin)):
        _enqueue(engine, queue, "a", kind="parse")
    _enqueue(engine, queue, "b", kind="parse")
    carried = {one.channel: one.headers for one in queue.messages(engine)}
    assert json.loads(carried["a"] or "") == {
        "traceparent": f"00-{1:032x}-{2:016x}-01", "tracestate": "vendor=x",
    }  # fmt: skip
    assert carried["b"] is None
    Worker(engine, queue, concurrency=1).run(drain=True)
    assert found.spans("send documents") == []
    parents = [span.parent.span_id if span.parent else None for span in found.spans("process documents")]
    assert sorted(parents, key=str) == [2, None]


@pytest.mark.parametrize("options", [{}, {"send": "span"}], ids=["default", "with send spans"])
def test_one_trace_through_a_retry_and_a_group(
    telemetry: Callable[..., Telemetry], engine: Engine, options: dict[str, Any]
) -> None:
    """From a request to the SQL of a handler: one trace, through a retry, a group and its follow-up, span by span."""
    found = telemetry(process="child", **options)
    _trace_statements(engine, found)
    queue = Queue("documents")

    @queue.handler("page", retry=RetryPolicy(first=timedelta(microseconds=1)))
    def page(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise ValueError("no such page")
        with engine.connect() as connection:
            connection.execute(text("select 'page'"))

    reported: list[Delivery] = []

    @queue.handler("report")
    def report(delivery: Delivery) -> None:
        reported.append(delivery)
        with engine.connect() as connection:
            connection.execute(text("select 'report'"))

    with (
        found.tracers.get_tracer("app").start_as_current_span("POST /uploads", kind=SpanKind.SERVER),
        Session(engine) as session,
        session.begin(),
        queue.group(session, then=Enqueue(channel="a", payload=1, kind="report")) as group,
    ):
        group.enqueue_many([Enqueue(channel="a", payload=1, kind="page")])
    # A group may be folded after its last member, when the queue is empty and a worker drained.
    for _ in range(20):
        if not reported:
            Worker(engine, queue, concurrency=1).run(drain=True)

    [request] = found.spans("POST /uploads")
    spans = {_ids(span): span for span in found.exporter.get_finished_spans()}
    sends = found.spans("send documents")
    assert bool(sends) == bool(options)
    assert [_parent(send, spans) for send in sends] == ["POST /uploads"] * len(sends)
    processes = found.spans("process documents")
    told = [(span.attributes or {}) for span in processes]
    assert [(one["fairqueue.kind"], one["fairqueue.attempt"]) for one in told] == [
        ("page", 1),
        ("page", 2),
        ("report", 1),
    ]
    above = "send documents" if options else "POST /uploads"
    assert [_parent(span, spans) for span in processes] == [above] * 3
    assert [span.status.status_code for span in processes] == [StatusCode.ERROR, StatusCode.UNSET, StatusCode.UNSET]
    statements = {name: found.spans(name) for name in ("select 'page'", "select 'report'")}
    below = {name: [_above(span) for span in made] for name, made in statements.items()}
    assert below == {"select 'page'": [_ids(processes[1])], "select 'report'": [_ids(processes[2])]}
    made = [span for some in statements.values() for span in some]
    assert {_ids(span)[0] for span in (request, *sends, *processes, *made)} == {_ids(request)[0]}


def test_groups_keep_both(telemetry: Callable[..., Telemetry], engine: Engine) -> None:
    """Members of a group have the headers of the group and of the trace beside their own, or their own context."""
    found = telemetry()
    queue = Queue("documents")
    own = f"00-{'1' * 32}-{'2' * 16}-01"
    with (
        found.tracers.get_tracer("app").start_as_current_span("POST /uploads"),
        Session(engine) as session,
        session.begin(),
        queue.group(session) as group,
    ):
        group.enqueue_many(
            [
                Enqueue(channel="a", payload=1),
                Enqueue(channel="b", payload=1, headers={"mine": 1}),
                Enqueue(channel="c", payload=1, headers={"traceparent": own}),
            ]
        )
    [request] = found.spans("POST /uploads")
    headers: dict[str, Any] = {one.channel: json.loads(one.headers or "") for one in queue.messages(engine)}
    of_group = {GROUP_HEADER: str(group.id)}
    assert {name: int(one["traceparent"].split("-")[2], 16) for name, one in headers.items()} == {
        "a": _ids(request)[1],
        "b": _ids(request)[1],
        "c": int("2" * 16, 16),
    }
    assert [{key: one[key] for key in one if key != "traceparent"} for _, one in sorted(headers.items())] == [
        of_group,
        {**of_group, "mine": 1},
        of_group,
    ]


def _trace_statements(engine: Engine, found: Telemetry) -> None:
    """A span for each statement of an engine, as an instrumentation of SQLAlchemy makes them."""
    tracer = found.tracers.get_tracer("sqlalchemy")

    def traced(*arguments: Any) -> None:
        tracer.start_span(arguments[2], kind=SpanKind.CLIENT).end()

    event.listen(engine, "before_cursor_execute", traced)


def _above(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


def _parent(span: ReadableSpan, spans: dict[tuple[int, int], ReadableSpan]) -> str:
    return spans[_above(span)].name


def test_a_wrong_relation() -> None:
    """What is neither a link nor a child is refused."""
    with pytest.raises(InvalidArgument, match="'link' or 'child'"):
        instrument(process="parent")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="'span' or 'context'"):
        instrument(send="nothing")  # type: ignore[arg-type]
