"""Errors of transactions in which queue work cannot be done."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors.base import FairQueueError


class LockOrderError(FairQueueError):
    """An enqueue that takes effect at once came out of the lock order. Nothing was sent: the transaction is usable.

    Attributes:
        sent: What the transaction has sent before: (schema, queue, channel, key), or "completion".
        refused: What came after it although it sorts before it.
    """

    def __init__(self, problem: str, sent: object = None, refused: object = None) -> None:
        super().__init__(problem, sent, refused)
        self.sent = sent
        self.refused = refused


class AutocommitError(FairQueueError):
    """Queue work was asked of a connection in AUTOCOMMIT, where it could not be atomic with the business writes."""


class IsolationError(FairQueueError, codes=("QF003",)):
    """A dequeue, or a limit on a whole queue, was asked for in a transaction that is not READ COMMITTED."""


class UnsentWork(FairQueueError):
    """Queue work of a transaction that cannot be sent in it any more.

    There are two ways to get here. An earlier commit failed while it sent the work: only a rollback is possible then.
    Or the call came when the transaction had already been committed, prepared or rolled back: from a hook that runs so
    late, or after a failed flush whose error was caught. That error is the cause. Nothing was recorded.
    """
