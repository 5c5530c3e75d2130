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

    Either an earlier commit failed while it sent the work, so that only a rollback is possible; or the work was asked
    for when the transaction had been committed, prepared or rolled back already, from a hook that runs that late or
    after a flush whose error was caught: then that error is the cause. Nothing was recorded.
    """
