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
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import (
    AsyncWorker,
    Batch,
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
from sqlalchemy_fairqueue.otel.propagation import injected
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

    def settled(self) -> dict[str, int]:
        """How many deliveries were settled, by how."""
        points = self.points()["fairqueue.message.settled"]
        return {point.attributes["messaging.operation.name"]: point.value for point in points}


Instrument = Callable[..., Telemetry]


@pytest.fixture
def telemetry() -> Iterator[Instrument]:
    """Instrument this process: ``telemetry(process="child")``."""

    def begin(**options: Any) -> Telemetry:
        made = Telemetry()
        instrument(tracer_provider=made.tracers, meter_provider=made.meters, **options)
        return made

    yield begin
    uninstrument()


@pytest.fixture
def queue() -> Queue:
    """Its handler does nothing."""
    queue = Queue("documents")
    queue.handler()(lambda _: None)
    return queue


def _enqueue(engine: Engine, queue: Queue, *channels: str, **fields: Any) -> None:
    with Session(engine) as session, session.begin():
        queue.enqueue_many(session, [Enqueue(channel=channel, payload=1, **fields) for channel in channels])


def _work(engine: Engine, queue: Queue) -> None:
    Worker(engine, queue, concurrency=1).run(drain=True)


def _headers(engine: Engine, queue: Queue) -> dict[str, dict[str, Any]]:
    """The headers of each channel's message."""
    return {one.channel: json.loads(one.headers or "{}") for one in queue.messages(engine)}


def _ids(span: ReadableSpan | SpanContext | None) -> tuple[int, int]:
    context = span.context if isinstance(span, ReadableSpan) else span
    assert context is not None
    return context.trace_id, context.span_id


def test_from_the_request_to_the_handler(telemetry: Instrument, engine: Engine) -> None:
    """A request's span is the parent of the send, which the process span links to."""
    found = telemetry(send="span")
    queue = Queue("documents")
    inside: list[Any] = []

    @queue.handler("parse")
    def parse(delivery: Delivery) -> None:
        inside.append((_ids(trace.get_current_span().get_span_context()), delivery.headers))

    with found.tracers.get_tracer("app").start_as_current_span("POST /uploads"):
        _enqueue(engine, queue, "customer-7", kind="parse", headers={"mine": 1})
    _work(engine, queue)

    names = ("POST /uploads", "send documents", "process documents", "settle documents")
    [request], [send], [handled], [settle] = map(found.spans, names)
    assert (_ids(send.parent), send.kind) == (_ids(request), SpanKind.PRODUCER)
    [(ids, headers)] = inside
    assert (ids, headers["mine"]) == (_ids(handled), 1)
    assert (handled.kind, handled.parent) == (SpanKind.CONSUMER, None)
    assert [_ids(link.context) for span in (handled, settle) for link in span.links] == [_ids(send)] * 2
    attributes = dict(handled.attributes or {})
    assert attributes["messaging.system"] == "fairqueue"
    assert attributes["messaging.destination.name"] == "documents"
    assert attributes["messaging.operation.type"] == "process"
    assert (attributes["fairqueue.channel"], attributes["fairqueue.attempt"]) == ("customer-7", 1)


def test_retries_and_failures(telemetry: Instrument, engine: Engine) -> None:
    """Each attempt is a span; a failure is its status, an outcome, also a returned class, is none."""
    found = telemetry(send="span")
    queue = Queue("documents")

    @queue.handler("parse", retry=RetryPolicy(first=timedelta(microseconds=1)))
    def parse(delivery: Delivery) -> type[Retry] | None:
        if delivery.attempt == 1:
            raise ValueError("no such page")
        if delivery.attempt == 2:
            raise Retry(delay=timedelta(0))
        return Retry if delivery.attempt == 3 else None

    _enqueue(engine, queue, "customer-7", kind="parse")
    _work(engine, queue)
    spans = found.spans("process documents")
    assert [(span.attributes or {})["fairqueue.attempt"] for span in spans] == [1, 2, 3, 4]
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR] + [StatusCode.UNSET] * 3
    assert (spans[0].attributes or {})["error.type"] == "ValueError"
    assert [(span.attributes or {}).get("fairqueue.outcome") for span in spans] == [None, "retry", "retry", None]
    [send] = found.spans("send documents")
    assert {_ids(link.context) for span in spans for link in span.links} == {_ids(send)}
    assert found.settled() == {"retry": 3, "complete": 1}


def test_prefetched_messages_have_no_spans(
    telemetry: Instrument, engine: Engine, monkeypatch: pytest.MonkeyPatch
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
    assert handled == 1
    assert found.settled()["release"] == taken - handled > 0
    assert [(one["messaging.operation.name"]) for one in settles] == ["complete"] * len(settles)
    assert sum(one["messaging.batch.message_count"] for one in settles) == handled


async def test_async_handlers(telemetry: Instrument, async_engine: AsyncEngine) -> None:
    """An async handler has its span too."""
    found = telemetry(process="child", send="span")
    queue = Queue("documents")
    inside: list[tuple[int, int]] = []

    @queue.handler("parse")
    async def parse(_: Delivery) -> None:
        inside.append(_ids(trace.get_current_span().get_span_context()))

    await queue.enqueue(async_engine, channel="customer-7", payload=1, kind="parse")
    await AsyncWorker(async_engine, queue, concurrency=1).run(drain=True)
    [span] = found.spans("process documents")
    assert inside == [_ids(span)]
    assert _ids(span.parent) == _ids(found.spans("send documents")[0])


def test_a_batch_is_one_span(telemetry: Instrument, engine: Engine) -> None:
    """It links the enqueue of each of its messages, and each is counted."""
    found = telemetry(send="span")
    queue = Queue("documents")
    queue.handler(batch=Batch(max_messages=10))(lambda _: None)
    for _ in range(3):
        _enqueue(engine, queue, "customer-7")
    _work(engine, queue)
    [span] = found.spans("process documents")
    assert {_ids(link.context) for link in span.links} == set(map(_ids, found.spans("send documents")))
    assert (span.attributes or {})["messaging.batch.message_count"] == 3
    points = found.points()
    assert points["messaging.client.consumed.messages"][0].value == 3
    assert points["fairqueue.message.wait"][0].count == 3


def test_many_messages_are_one_send(telemetry: Instrument, engine: Engine, queue: Queue) -> None:
    """A bulk enqueue is one span that all of its messages carry; one with a context of its own keeps that."""
    found = telemetry(send="span")
    own = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    headers = {"a": None, "b": None, "c": own}
    queue.enqueue_many(engine, [Enqueue(channel=name, payload=1, headers=one) for name, one in headers.items()])
    [send] = found.spans("send documents")
    assert (send.attributes or {})["messaging.batch.message_count"] == 3
    carried = _headers(engine, queue)
    assert carried["c"] == own
    assert carried["a"] == carried["b"]
    assert format(_ids(send)[1], "016x") in carried["a"]["traceparent"]


def test_metrics(telemetry: Instrument, engine: Engine, queue: Queue) -> None:
    """Metrics count and time the work by queue, and no attribute has tenants as its values. An exemplar of a wait or a
    duration leads to the span of the handler, which names the tenant.
    """
    found = telemetry()
    _enqueue(engine, queue, *ODD_NAMES, "a")
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
    tenants = {_ids(span): (span.attributes or {})["fairqueue.channel"] for span in found.spans("process documents")}
    for name in ("fairqueue.message.wait", "fairqueue.message.attempt", "messaging.process.duration"):
        exemplars = [one for point in points[name] for one in point.exemplars]
        assert exemplars, name
        assert {tenants[one.trace_id, one.span_id] for one in exemplars} <= {*ODD_NAMES, "a"}


def test_gauges_of_a_database_that_is_away(telemetry: Instrument, caplog: pytest.LogCaptureFixture) -> None:
    """An export asks once for all of its gauges, and leaves them out."""
    engine, asked = create_engine("postgresql+psycopg://127.0.0.1:1/nothing"), []
    event.listen(engine, "do_connect", lambda *_: asked.append(True))
    found = telemetry()
    observe_queues(engine, Queue("documents"), meter_provider=found.meters)
    found.reader.get_metrics_data()
    assert (len(asked), caplog.text.count("the figures of the queues cannot be read")) == (1, 1)


@pytest.mark.parametrize("settles", [True, False], ids=["by the handler", "by the worker"])
def test_lost_leases_are_counted(telemetry: Instrument, engine: Engine, database: Database, *, settles: bool) -> None:
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
    assert found.settled() == {"lost": 1}


def test_bad_contexts(telemetry: Instrument, engine: Engine, queue: Queue) -> None:
    """Headers that carry no context, or a broken one, cost nothing but the link."""
    found = telemetry(process="child")
    for broken in ("", "00-zz-1-01", 7, None, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"):
        _enqueue(engine, queue, "a", headers={"traceparent": broken, "tracestate": "\x1b="})
    _work(engine, queue)
    assert [(span.parent, len(span.links)) for span in found.spans("process documents")] == [(None, 0)] * 5


def test_headers_as_long_as_allowed(telemetry: Instrument, engine: Engine, queue: Queue) -> None:
    """Headers that fit without a trace fit with one: long ones carry none, short ones do."""
    telemetry(process="child", send="span")
    longest = {"a": "x" * (65_536 - len('{"a": ""}'))}
    for headers in (longest, {"a": "x"}):
        _enqueue(engine, queue, "a", headers=headers)
    long, short = [json.loads(one.headers or "") for one in queue.messages(engine)]
    assert long == longest
    assert set(short) == {"a", "traceparent"}


def test_a_sampled_out_request(telemetry: Instrument, engine: Engine, queue: Queue) -> None:
    """In a trace that the sampler left out, nothing is recorded, and messages say that it was left out."""
    found = telemetry(process="child", send="span")
    left_out = TracerProvider(sampler=ALWAYS_OFF)
    with left_out.get_tracer("app").start_as_current_span("POST /uploads") as request:
        _enqueue(engine, queue, "a")
    context = request.get_span_context()
    sent = _headers(engine, queue)["a"]["traceparent"]
    assert sent.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    assert int(sent[-2:], 16) & TraceFlags.SAMPLED == 0
    _work(engine, queue)
    assert found.spans("send documents") == found.spans("process documents") == []
    assert found.points()["messaging.client.sent.messages"][0].value == 1


def test_context_without_a_span(telemetry: Instrument, engine: Engine, queue: Queue) -> None:
    """Unless spans are requested, messages carry the request's own context with its state; there is no send span."""
    found = telemetry(process="child")
    origin = SpanContext(0x1, 0x2, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("vendor", "x")]))
    with trace.use_span(trace.NonRecordingSpan(origin)):
        _enqueue(engine, queue, "a")
    _enqueue(engine, queue, "b")
    context = {"traceparent": f"00-{1:032x}-{2:016x}-01", "tracestate": "vendor=x"}
    assert _headers(engine, queue) == {"a": context, "b": {}}
    _work(engine, queue)
    assert found.spans("send documents") == []
    parents = [span.parent.span_id if span.parent else None for span in found.spans("process documents")]
    assert sorted(parents, key=str) == [2, None]


@pytest.mark.parametrize("options", [{}, {"send": "span"}], ids=["default", "with send spans"])
def test_one_trace_through_a_retry_and_a_group(telemetry: Instrument, engine: Engine, options: dict[str, Any]) -> None:
    """From a request to the SQL of a handler: one trace, through a retry, a group and its follow-up, span by span."""
    found = telemetry(process="child", **options)
    # A span for each statement, as an instrumentation of SQLAlchemy makes them.
    tracer = found.tracers.get_tracer("sqlalchemy")
    event.listen(engine, "before_cursor_execute", lambda *given: tracer.start_span(given[2]).end())
    queue = Queue("documents")

    @queue.handler("page", retry=RetryPolicy(first=timedelta(microseconds=1)))
    def page(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            raise ValueError("no such page")
        with engine.connect() as connection:
            connection.execute(text("select 'page'"))

    @queue.handler("report")
    def report(_: Delivery) -> None:
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
        if len(found.spans("process documents")) < 3:
            _work(engine, queue)

    [request] = found.spans("POST /uploads")
    names = {_ids(span): span.name for span in found.exporter.get_finished_spans()}
    sends = found.spans("send documents")
    assert bool(sends) == bool(options)
    assert [names[_ids(send.parent)] for send in sends] == ["POST /uploads"] * len(sends)
    processes = found.spans("process documents")
    told: list[dict[str, Any]] = [dict(span.attributes or {}) for span in processes]
    assert [f"{one['fairqueue.kind']} {one['fairqueue.attempt']}" for one in told] == ["page 1", "page 2", "report 1"]
    above = "send documents" if options else "POST /uploads"
    assert [(names[_ids(span.parent)], len(span.links)) for span in processes] == [(above, 0)] * 3
    assert [span.status.status_code for span in processes] == [StatusCode.ERROR, StatusCode.UNSET, StatusCode.UNSET]
    statements = {name: found.spans(name) for name in ("select 'page'", "select 'report'")}
    below = {name: [_ids(span.parent) for span in made] for name, made in statements.items()}
    assert below == {"select 'page'": [_ids(processes[1])], "select 'report'": [_ids(processes[2])]}
    made = [span for some in statements.values() for span in some]
    assert {_ids(span)[0] for span in (request, *sends, *processes, *made)} == {_ids(request)[0]}


def test_groups_keep_both(telemetry: Instrument, engine: Engine, queue: Queue) -> None:
    """Members of a group have the headers of the group and of the trace beside their own, or their own context."""
    found = telemetry()
    own = f"00-{'1' * 32}-{'2' * 16}-01"
    with (
        found.tracers.get_tracer("app").start_as_current_span("POST /uploads"),
        Session(engine) as session,
        session.begin(),
        queue.group(session) as group,
    ):
        given = {"a": None, "b": {"mine": 1}, "c": {"traceparent": own}}
        group.enqueue_many([Enqueue(channel=name, payload=1, headers=one) for name, one in given.items()])
    [request] = found.spans("POST /uploads")
    assert request.context is not None
    of_group = {GROUP_HEADER: str(group.id), **injected(request.context)}
    assert _headers(engine, queue) == {
        "a": of_group, "b": {**of_group, "mine": 1}, "c": {**of_group, "traceparent": own},
    }  # fmt: skip


def test_a_wrong_relation() -> None:
    """What is neither a link nor a child is refused."""
    with pytest.raises(InvalidArgument, match="'link' or 'child'"):
        instrument(process="parent")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="'span' or 'context'"):
        instrument(send="nothing")  # type: ignore[arg-type]


_STATES = (None, TraceState(), TraceState([("vendor", "x"), ("other", "y=z")]))


@pytest.mark.parametrize("trace_id", [1, 0x0AF7651916CD43DD8448EB211C80319C, 2**128 - 1])
@pytest.mark.parametrize("span_id", [1, 0x00B7AD6B71692033, 2**64 - 1])
@pytest.mark.parametrize("flags", [0, 1, 2, 255])
@pytest.mark.parametrize("state", _STATES, ids=["no state", "an empty state", "a state"])
def test_as_the_propagator_writes_it(trace_id: int, span_id: int, flags: int, state: TraceState | None) -> None:
    """For each valid context the headers are those of the propagator."""
    context = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(flags), trace_state=state)
    expected: dict[str, str] = {}
    span = trace.set_span_in_context(trace.NonRecordingSpan(context))
    TraceContextTextMapPropagator().inject(expected, span)
    assert injected(context) == expected


@pytest.mark.parametrize(("trace_id", "span_id"), [(0, 0), (0, 1), (1, 0), (2**128, 1), (1, 2**64)])
def test_nothing_of_a_context_that_is_not_valid(trace_id: int, span_id: int) -> None:
    """An id of zeros, or one that is too long, is carried nowhere: consumers would have to ignore it."""
    assert injected(SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1))) == {}
