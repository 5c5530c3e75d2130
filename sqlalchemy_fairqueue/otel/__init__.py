"""OpenTelemetry (extra ``otel``): traces from the enqueue to the handler, through the COMMIT, and metrics of both."""

from sqlalchemy_fairqueue.otel.instrumentation import instrument, observe_queues, uninstrument

__all__ = ["instrument", "observe_queues", "uninstrument"]
