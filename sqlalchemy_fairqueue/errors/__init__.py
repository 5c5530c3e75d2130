"""Errors of this package.

Each one says what happened, with the values, then what to do. A class names the SQLSTATE codes that stand for it, by
which ``database`` turns what the driver raises into the class. This package must not know how a statement is sent.

All names are imported from here; the modules sort them by subject.
"""

from sqlalchemy_fairqueue.errors.access import NotGranted, SchemaMismatch
from sqlalchemy_fairqueue.errors.arguments import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.errors.base import FairQueueError, FairQueueWarning
from sqlalchemy_fairqueue.errors.enqueues import ChannelFull, DuplicateMessage, OutsideGroupWarning
from sqlalchemy_fairqueue.errors.handlers import (
    HandlerCrashed,
    HandlerTimeout,
    HandlerTransactionWarning,
    HandlerWaitWarning,
    LeaseLost,
    MessageCancelled,
    StartError,
    UnhandledKindWarning,
    WorkerError,
)
from sqlalchemy_fairqueue.errors.migrations import migration_refusal
from sqlalchemy_fairqueue.errors.results import (
    MessageFailed,
    ResultCancelled,
    ResultError,
    ResultNotKept,
    ResultNotReady,
    UnknownMessage,
)
from sqlalchemy_fairqueue.errors.texts import clean, last_line, logged, said, shortened, traced
from sqlalchemy_fairqueue.errors.transactions import AutocommitError, IsolationError, LockOrderError, UnsentWork
from sqlalchemy_fairqueue.errors.unknown import UnknownChannel, UnknownGroup, UnknownSchedule

__all__ = [
    "AutocommitError",
    "ChannelFull",
    "DuplicateMessage",
    "FairQueueError",
    "FairQueueWarning",
    "HandlerCrashed",
    "HandlerTimeout",
    "HandlerTransactionWarning",
    "HandlerWaitWarning",
    "InvalidArgument",
    "IsolationError",
    "LeaseLost",
    "LockOrderError",
    "MessageCancelled",
    "MessageFailed",
    "NotGranted",
    "OutsideGroupWarning",
    "PayloadError",
    "ResultCancelled",
    "ResultError",
    "ResultNotKept",
    "ResultNotReady",
    "SchemaMismatch",
    "StartError",
    "UnhandledKindWarning",
    "UnknownChannel",
    "UnknownGroup",
    "UnknownMessage",
    "UnknownSchedule",
    "UnsentWork",
    "WorkerError",
    "clean",
    "last_line",
    "logged",
    "migration_refusal",
    "said",
    "shortened",
    "traced",
]
