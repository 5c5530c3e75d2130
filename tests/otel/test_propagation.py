"""Messages carry the context of a span exactly as OpenTelemetry's own propagator writes it."""

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanContext, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sqlalchemy_fairqueue.otel.propagation import injected

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
