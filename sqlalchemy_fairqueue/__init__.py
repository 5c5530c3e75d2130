"""A fair multi-tenant queue in the application's own PostgreSQL, used from SQLAlchemy.

``Queue`` is the way in; README.md has the tour, docs/ the contracts. Importing the package registers listeners on the
Session class: they send what was enqueued on a session right before its COMMIT.
"""

from sqlalchemy_fairqueue.codecs import BytesCodec, Codec, JsonCodec
from sqlalchemy_fairqueue.errors import (
    AutocommitError,
    FairQueueError,
    InvalidArgument,
    IsolationError,
    LeaseLost,
    LockOrderError,
    PayloadError,
    SchemaMismatch,
    UnsentWork,
)
from sqlalchemy_fairqueue.models import Channel, Message, make_models
from sqlalchemy_fairqueue.queue import Queue
from sqlalchemy_fairqueue.values import Batch, ChannelPolicy, Delivery, Enqueue, Lease, Receipt

__all__ = [
    "AutocommitError",
    "Batch",
    "BytesCodec",
    "Channel",
    "ChannelPolicy",
    "Codec",
    "Delivery",
    "Enqueue",
    "FairQueueError",
    "InvalidArgument",
    "IsolationError",
    "JsonCodec",
    "Lease",
    "LeaseLost",
    "LockOrderError",
    "Message",
    "PayloadError",
    "Queue",
    "Receipt",
    "SchemaMismatch",
    "UnsentWork",
    "make_models",
]
