"""OpenTelemetry: traces from the enqueue to the handler, through the COMMIT, and metrics of both.

It needs the extra ``otel``. ``instrument()`` is all there is to call.
"""

from sqlalchemy_fairqueue.otel.instrumentation import instrument, uninstrument
from sqlalchemy_fairqueue.otel.queues import observe_queues

__all__ = ["instrument", "observe_queues", "uninstrument"]
