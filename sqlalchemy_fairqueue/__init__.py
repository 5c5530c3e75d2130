"""A fair multi-tenant queue in the application's own PostgreSQL, used from SQLAlchemy.

Begin with ``Queue``. Importing ``Queue`` registers listeners on the Session class, which send what was enqueued on a
session right before its COMMIT. Rarer names are in the modules ``reports`` (the classes of what queues return),
``errors``, ``models`` (the mapped classes), and ``queue`` (the classes of facets such as ``queue.plans``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import (
    first_process,  # noqa: F401 - before what takes long to import
    watching,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.codecs import BytesCodec, Codec, JsonCodec
    from sqlalchemy_fairqueue.database.installation import install_fairqueue
    from sqlalchemy_fairqueue.errors import (
        ChannelFull,
        DuplicateMessage,
        FairQueueError,
        FairQueueWarning,
        HandlerTimeout,
        InvalidArgument,
        LeaseLost,
        MessageCancelled,
        MessageFailed,
        PayloadError,
        ResultCancelled,
        ResultError,
        ResultNotKept,
        ResultNotReady,
        SchemaMismatch,
        UnhandledKindWarning,
        UnknownMessage,
    )
    from sqlalchemy_fairqueue.models import RoleGrant, declare_grants, make_models
    from sqlalchemy_fairqueue.queue import Group, Job, Queue
    from sqlalchemy_fairqueue.queue.contexts import Context
    from sqlalchemy_fairqueue.values.fields import Rate
    from sqlalchemy_fairqueue.values.messages import Batch, Delivery, Enqueue, Lease, Receipt
    from sqlalchemy_fairqueue.values.outcomes import Bury, Release, Retry, RetryPolicy
    from sqlalchemy_fairqueue.values.policies import ChannelPolicy
    from sqlalchemy_fairqueue.values.schedules import Recurrence
    from sqlalchemy_fairqueue.watching import ResultWatch
    from sqlalchemy_fairqueue.worker import AsyncWorker, Worker

__all__ = [
    "AsyncWorker",
    "Batch",
    "Bury",
    "BytesCodec",
    "ChannelFull",
    "ChannelPolicy",
    "Codec",
    "Context",
    "Delivery",
    "DuplicateMessage",
    "Enqueue",
    "FairQueueError",
    "FairQueueWarning",
    "Group",
    "HandlerTimeout",
    "InvalidArgument",
    "Job",
    "JsonCodec",
    "Lease",
    "LeaseLost",
    "MessageCancelled",
    "MessageFailed",
    "PayloadError",
    "Queue",
    "Rate",
    "Receipt",
    "Recurrence",
    "Release",
    "ResultCancelled",
    "ResultError",
    "ResultNotKept",
    "ResultNotReady",
    "Retry",
    "RetryPolicy",
    "RoleGrant",
    "SchemaMismatch",
    "UnhandledKindWarning",
    "UnknownMessage",
    "Worker",
    "declare_grants",
    "install_fairqueue",
    "make_models",
]


def _watch_of(engine: Engine) -> ResultWatch:
    watch: ResultWatch = import_module("sqlalchemy_fairqueue.worker.wakeups").watch_of(engine)
    return watch


watching.watching.watch_of = _watch_of

if not TYPE_CHECKING:
    # Hidden from type checkers, which would accept any name because of __getattr__.
    _HOMES = {
        "codecs": ["BytesCodec", "Codec", "JsonCodec"],
        "database.installation": ["install_fairqueue"],
        "models": ["RoleGrant", "declare_grants", "make_models"],
        "queue": ["Group", "Job", "Queue"],
        "queue.contexts": ["Context"],
        "values.fields": ["Rate"],
        "values.messages": ["Batch", "Delivery", "Enqueue", "Lease", "Receipt"],
        "values.outcomes": ["Bury", "Release", "Retry", "RetryPolicy"],
        "values.policies": ["ChannelPolicy"],
        "values.schedules": ["Recurrence"],
        "worker": ["AsyncWorker", "Worker"],
    }
    _LATER = {name: home for home, names in _HOMES.items() for name in names}
    _MODULES = {"codecs", "database", "errors", "models", "queue", "values", "worker"}

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_LATER.get(name, 'errors')}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
