"""Queue work inside a transaction: recorded on the session, put in lock order, sent right before COMMIT.

An enqueue locks entries of unique indexes: that of a new channel, and that of a key. A completion locks messages. Two
transactions that take such locks in different orders could deadlock, so all transactions take them in one order:

* ``operations`` holds the operations that a session can record, each with its phase and its locks;
* ``work`` sorts them for their way to the server;
* ``locks`` knows the order, how far into it each transaction is, and what is locked first;
* ``statements`` sends the work in this order, by ``enqueues`` and ``settlement``;
* ``records`` ties all of this to the life of a session.
"""

from sqlalchemy_fairqueue.unit_of_work.locks import LockOrder, lock_order_of
from sqlalchemy_fairqueue.unit_of_work.operations import (
    Cancel,
    Configure,
    ConfigureLimit,
    ConfigurePlan,
    EnqueueMessage,
    Limit,
    MakeGroup,
    Operation,
    Pause,
    PauseSchedule,
    Purge,
    ReceiptUpdate,
    RemoveSchedule,
    SetQueue,
    SetSchedule,
    Settle,
    Target,
    Verb,
)
from sqlalchemy_fairqueue.unit_of_work.records import discard, guard, joined, record, recorded, send_recorded
from sqlalchemy_fairqueue.unit_of_work.sessions import connection as connection_of
from sqlalchemy_fairqueue.unit_of_work.sessions import session_of
from sqlalchemy_fairqueue.unit_of_work.settlement import settle, token_of
from sqlalchemy_fairqueue.unit_of_work.statements import send, send_alone, send_last, send_together

__all__ = [
    "Cancel",
    "Configure",
    "ConfigureLimit",
    "ConfigurePlan",
    "EnqueueMessage",
    "Limit",
    "LockOrder",
    "MakeGroup",
    "Operation",
    "Pause",
    "PauseSchedule",
    "Purge",
    "ReceiptUpdate",
    "RemoveSchedule",
    "SetQueue",
    "SetSchedule",
    "Settle",
    "Target",
    "Verb",
    "connection_of",
    "discard",
    "guard",
    "joined",
    "lock_order_of",
    "record",
    "recorded",
    "send",
    "send_alone",
    "send_last",
    "send_recorded",
    "send_together",
    "session_of",
    "settle",
    "token_of",
]
