"""Processor time that OpenTelemetry adds to an insert and an enqueue in a session's transaction."""

from __future__ import annotations

import random
from statistics import median
from time import thread_time_ns
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.otel import instrument, uninstrument
from sqlalchemy_fairqueue.queue.instrumentation import installed
from tests.bench.figures import Figure
from tests.unit_of_work.business import Base, Upload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_QUEUE = Queue("documents", schema="fairqueue")
_SIDES = ("without", "with")


class _Nowhere(SpanExporter):
    """Exports spans to nowhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - as the SDK calls it
        """Export nothing."""
        return SpanExportResult.SUCCESS


def test_an_enqueue_within_a_span(stage: Stage, report: Report, *, full: bool) -> None:
    """A traced enqueue needs less than 2 % more than one that is not, both within the span of a request.

    Transactions of both sides follow each other in random order; a round compares the medians of as many of each.
    """
    rounds, pairs = (30, 400) if full else (10, 200)
    filled = stage.fill("fair", channels=1, messages=0)
    sides: dict[str, list[float]] = {side: [] for side in _SIDES}
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(_Nowhere()))
    tracer = tracers.get_tracer("app")
    with stage.clone(filled) as conninfo:
        engine = create_engine(make_url(conninfo).set(drivername="postgresql+psycopg"), pool_size=1)
        Base.metadata.create_all(engine)
        instrument(tracer_provider=tracers, meter_provider=MeterProvider())
        traced = installed.instrumentation
        try:
            for number in range(rounds + 1):
                took: dict[str, list[int]] = {side: [] for side in _SIDES}
                for pair in range(pairs):
                    for side in random.sample(_SIDES, 2):
                        installed.instrumentation = traced if side == "with" else None
                        with tracer.start_as_current_span("POST /uploads"):
                            took[side].append(_enqueue(engine, pair))
                for side in _SIDES:
                    sides[side] += [median(took[side]) / 1000] if number else []
        finally:
            uninstrument()
            engine.dispose()
            tracers.shutdown()
    stage.drop(filled)
    what = "insert and enqueue in a Session with OpenTelemetry, client"
    report.add(Figure(what, "us", sides["with"], sides["without"], "not instrumented", 1.02, "less"))


def _enqueue(engine: Engine, number: int) -> int:
    """The thread's processor time of a transaction, in nanoseconds."""
    began = thread_time_ns()
    with Session(engine) as session, session.begin():
        session.add(Upload(name=f"upload {began}"))
        _QUEUE.enqueue(session, channel=f"tenant-{number % 100}", payload={"upload": number})
    return thread_time_ns() - began
