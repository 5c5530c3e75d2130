"""OpenTelemetry (extra ``otel``): traces from the enqueue through the COMMIT to the handler, metrics, gauges."""

from sqlalchemy_fairqueue.otel.instrumentation import instrument, observe_queues, uninstrument

__all__ = ["instrument", "observe_queues", "uninstrument"]
