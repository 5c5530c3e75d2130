"""Prometheus metrics of queues and workers (extra ``metrics``), to register, mount in an application, or serve alone.

No metric has a label whose values are tenants: the number of series depends on queues and workers alone.
"""

from sqlalchemy_fairqueue.metrics.applications import asgi_application, wsgi_application
from sqlalchemy_fairqueue.metrics.collector import METRICS, MetricDefinition, QueueCollector, WorkerCollector

__all__ = ["METRICS", "MetricDefinition", "QueueCollector", "WorkerCollector", "asgi_application", "wsgi_application"]
