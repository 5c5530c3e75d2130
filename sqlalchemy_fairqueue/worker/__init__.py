"""Workers: take messages, call their handlers, and survive whatever happens meanwhile.

``Worker`` calls handlers in threads, ``AsyncWorker`` in an event loop; what is under them is the same. Parts without
I/O: ``pace`` (how many to hold), ``looks`` (when to look), ``claims`` (what is proven of leases), ``decisions`` (how a
delivery ends). Parts with a thread and a connection of their own: ``fetching``, ``settling``, ``heartbeat``,
``wakeups``.
"""

from sqlalchemy_fairqueue.worker.async_worker import AsyncWorker
from sqlalchemy_fairqueue.worker.context import Context
from sqlalchemy_fairqueue.worker.stats import WorkerStats
from sqlalchemy_fairqueue.worker.worker import Worker

__all__ = ["AsyncWorker", "Context", "Worker", "WorkerStats"]
