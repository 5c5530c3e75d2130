"""A fair multi-tenant queue in the application's own PostgreSQL, used from SQLAlchemy.

``Queue`` is the way in; README.md has the tour, docs/ the contracts. Importing the package registers listeners on the
Session class: they send what was enqueued on a session right before its COMMIT.
"""

from sqlalchemy_fairqueue.codecs import BytesCodec, Codec, JsonCodec
from sqlalchemy_fairqueue.errors import (
    AutocommitError,
    ChannelFull,
    DuplicateMessage,
    FairQueueError,
    HandlerCrashed,
    HandlerTimeout,
    InvalidArgument,
    IsolationError,
    LeaseLost,
    LockOrderError,
    MessageCancelled,
    PayloadError,
    SchemaMismatch,
    UnsentWork,
    WorkerError,
)
from sqlalchemy_fairqueue.models import Channel, Message, make_models
from sqlalchemy_fairqueue.queue import Queue
from sqlalchemy_fairqueue.values import (
    Batch,
    Bury,
    CancelReceipt,
    ChannelPolicy,
    ChannelStats,
    DeadLetterInfo,
    Delivery,
    Enqueue,
    Lease,
    PurgeReceipt,
    QueueStats,
    Receipt,
    Release,
    Retry,
    RetryPolicy,
)
from sqlalchemy_fairqueue.worker import AsyncWorker, Context, Worker, WorkerStats

__all__ = [
    "AsyncWorker",
    "AutocommitError",
    "Batch",
    "Bury",
    "BytesCodec",
    "CancelReceipt",
    "Channel",
    "ChannelFull",
    "ChannelPolicy",
    "ChannelStats",
    "Codec",
    "Context",
    "DeadLetterInfo",
    "Delivery",
    "DuplicateMessage",
    "Enqueue",
    "FairQueueError",
    "HandlerCrashed",
    "HandlerTimeout",
    "InvalidArgument",
    "IsolationError",
    "JsonCodec",
    "Lease",
    "LeaseLost",
    "LockOrderError",
    "Message",
    "MessageCancelled",
    "PayloadError",
    "PurgeReceipt",
    "Queue",
    "QueueStats",
    "Receipt",
    "Release",
    "Retry",
    "RetryPolicy",
    "SchemaMismatch",
    "UnsentWork",
    "Worker",
    "WorkerError",
    "WorkerStats",
    "make_models",
]
