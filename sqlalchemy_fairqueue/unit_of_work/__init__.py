"""Queue work inside a transaction: recorded on the session, put in lock order, sent right before COMMIT.

An enqueue locks entries of unique indexes: that of a new channel, and that of a key. A completion locks messages. Two
transactions that take such locks in different orders could deadlock, so all transactions take them in one order:

* ``operations`` knows the phases, in which a transaction's operations are sent;
* ``enqueues``, ``settlements`` and ``changes`` define the operations, and make statements of a queue's operations;
* ``sending`` sorts the operations of a transaction into the order, and remembers how far into it the transaction is;
* ``sessions`` ties all of this to the life of a session.
"""

from sqlalchemy_fairqueue.unit_of_work import changes
from sqlalchemy_fairqueue.unit_of_work.enqueues import EnqueueMessage, MakeGroup, Membership
from sqlalchemy_fairqueue.unit_of_work.operations import Operation, ReceiptUpdate
from sqlalchemy_fairqueue.unit_of_work.sending import lock_order_of, send, send_alone, send_together
from sqlalchemy_fairqueue.unit_of_work.sessions import (
    connection_of,
    discard,
    guard,
    joined,
    record,
    recorded,
    send_recorded,
    session_of,
)
from sqlalchemy_fairqueue.unit_of_work.settlements import Cancel, Settle, Verb, settle, token_of

__all__ = [
    "Cancel",
    "EnqueueMessage",
    "MakeGroup",
    "Membership",
    "Operation",
    "ReceiptUpdate",
    "Settle",
    "Verb",
    "changes",
    "connection_of",
    "discard",
    "guard",
    "joined",
    "lock_order_of",
    "record",
    "recorded",
    "send",
    "send_alone",
    "send_recorded",
    "send_together",
    "session_of",
    "settle",
    "token_of",
]
