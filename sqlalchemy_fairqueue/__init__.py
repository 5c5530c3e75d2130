"""A fair multi-tenant queue in the application's own PostgreSQL, used from SQLAlchemy.

``Queue`` is the way in; the documentation has the tour and the contracts. Importing the package registers listeners
on the Session class: they send what was enqueued on a session right before its COMMIT.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import first_process  # noqa: F401 - before what takes long to import
from sqlalchemy_fairqueue.codecs import BytesCodec, Codec, JsonCodec
from sqlalchemy_fairqueue.database.installation import install_fairqueue
from sqlalchemy_fairqueue.errors import (
    AutocommitError,
    ChannelFull,
    DuplicateMessage,
    FairQueueError,
    FairQueueWarning,
    HandlerCrashed,
    HandlerTimeout,
    HandlerTransactionWarning,
    HandlerWaitWarning,
    InvalidArgument,
    IsolationError,
    LeaseLost,
    LockOrderError,
    MessageCancelled,
    MessageFailed,
    NotGranted,
    OutsideGroupWarning,
    PayloadError,
    ResultCancelled,
    ResultError,
    ResultNotKept,
    ResultNotReady,
    SchemaMismatch,
    StartError,
    UnhandledKindWarning,
    UnknownChannel,
    UnknownGroup,
    UnknownMessage,
    UnknownSchedule,
    UnsentWork,
    WorkerError,
)
from sqlalchemy_fairqueue.models import RoleGrant, declare_grants, make_models
from sqlalchemy_fairqueue.queue import Group, Job, MemberGroup, Queue
from sqlalchemy_fairqueue.queue.middleware import AsyncMiddleware, Middleware
from sqlalchemy_fairqueue.values import (
    AttemptDetails,
    Batch,
    Bury,
    CancelReceipt,
    ChannelDemand,
    ChannelPolicy,
    ChannelStats,
    ConsumerInfo,
    Contention,
    DeadLetterInfo,
    Delivery,
    Enqueue,
    GroupCancellation,
    GroupCounts,
    GroupStatus,
    Lease,
    LeftoverReason,
    Leftovers,
    MessageDetails,
    MessagePage,
    PlanInfo,
    PurgeReceipt,
    QueueStats,
    QueueTaker,
    Rate,
    Reason,
    Receipt,
    Recurrence,
    Release,
    Retry,
    RetryPolicy,
    ScheduleInfo,
    SharedLimit,
    Taker,
    Wait,
)
from sqlalchemy_fairqueue.worker import AsyncWorker, Context, Health, Worker, WorkerStats

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.models import Channel, Message

__all__ = [
    "AsyncMiddleware",
    "AsyncWorker",
    "AttemptDetails",
    "AutocommitError",
    "Batch",
    "Bury",
    "BytesCodec",
    "CancelReceipt",
    "Channel",
    "ChannelDemand",
    "ChannelFull",
    "ChannelPolicy",
    "ChannelStats",
    "Codec",
    "ConsumerInfo",
    "Contention",
    "Context",
    "DeadLetterInfo",
    "Delivery",
    "DuplicateMessage",
    "Enqueue",
    "FairQueueError",
    "FairQueueWarning",
    "Group",
    "GroupCancellation",
    "GroupCounts",
    "GroupStatus",
    "HandlerCrashed",
    "HandlerTimeout",
    "HandlerTransactionWarning",
    "HandlerWaitWarning",
    "Health",
    "InvalidArgument",
    "IsolationError",
    "Job",
    "JsonCodec",
    "Lease",
    "LeaseLost",
    "LeftoverReason",
    "Leftovers",
    "LockOrderError",
    "MemberGroup",
    "Message",
    "MessageCancelled",
    "MessageDetails",
    "MessageFailed",
    "MessagePage",
    "Middleware",
    "NotGranted",
    "OutsideGroupWarning",
    "PayloadError",
    "PlanInfo",
    "PurgeReceipt",
    "Queue",
    "QueueStats",
    "QueueTaker",
    "Rate",
    "Reason",
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
    "ScheduleInfo",
    "SchemaMismatch",
    "SharedLimit",
    "StartError",
    "Taker",
    "UnhandledKindWarning",
    "UnknownChannel",
    "UnknownGroup",
    "UnknownMessage",
    "UnknownSchedule",
    "UnsentWork",
    "Wait",
    "Worker",
    "WorkerError",
    "WorkerStats",
    "declare_grants",
    "install_fairqueue",
    "make_models",
]

# Mapping the classes takes a fifth of the time of an import: it waits for the first use.
_MAPPED = ("Channel", "Message")


def __getattr__(name: str) -> Any:
    if name not in _MAPPED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("sqlalchemy_fairqueue.models"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MAPPED})
