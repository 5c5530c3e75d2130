"""OpenTelemetry: traces from the enqueue to the handler, through the COMMIT, and metrics of both.

It needs the extra ``otel``. ``instrument()`` is all there is to call.
"""

from sqlalchemy_fairqueue.otel.instrumentation import instrument, observe_queues, uninstrument

__all__ = ["instrument", "observe_queues", "uninstrument"]
