"""Prometheus metrics of queues and workers, to register, to mount in an application, or to serve alone.

No metric has a label whose values are tenants: the number of series depends on queues and workers alone. The extra
``metrics`` is needed.
"""

from sqlalchemy_fairqueue.metrics.applications import asgi_application, wsgi_application
from sqlalchemy_fairqueue.metrics.collector import METRICS, MetricDefinition, QueueCollector, WorkerCollector

__all__ = ["METRICS", "MetricDefinition", "QueueCollector", "WorkerCollector", "asgi_application", "wsgi_application"]
