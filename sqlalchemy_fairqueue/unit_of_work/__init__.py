"""Queue work inside a transaction: recorded on the session, put in lock order, sent right before COMMIT.

Enqueues take unique-index locks on first use of a channel and on keys, completions lock messages. Taken in any order by
two transactions they could deadlock, so that there is one order: ``operations`` says what can be asked for, ``ledger``
knows the order and what a transaction has sent, ``sending`` sends in it, and ``recording`` ties it to the life of a
session.
"""

from sqlalchemy_fairqueue.unit_of_work.adding import may_notify
from sqlalchemy_fairqueue.unit_of_work.ledger import ledger_of
from sqlalchemy_fairqueue.unit_of_work.operations import (
    Cancel,
    Configure,
    EnqueueMessage,
    Limit,
    Operation,
    Pause,
    Purge,
    RecordHistory,
    Settle,
    Target,
    Verb,
)
from sqlalchemy_fairqueue.unit_of_work.recording import guard, joined, record, recorded, send_now
from sqlalchemy_fairqueue.unit_of_work.sending import send, send_alone
from sqlalchemy_fairqueue.unit_of_work.sessions import connection as connection_of
from sqlalchemy_fairqueue.unit_of_work.sessions import session_of

__all__ = [
    "Cancel",
    "Configure",
    "EnqueueMessage",
    "Limit",
    "Operation",
    "Pause",
    "Purge",
    "RecordHistory",
    "Settle",
    "Target",
    "Verb",
    "connection_of",
    "guard",
    "joined",
    "ledger_of",
    "may_notify",
    "record",
    "recorded",
    "send",
    "send_alone",
    "send_now",
    "session_of",
]
