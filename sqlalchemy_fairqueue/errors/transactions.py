"""Errors of transactions in which queue work cannot be done."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors.base import FairQueueError


class LockOrderError(FairQueueError):
    """An enqueue that takes effect at once came out of the lock order. Nothing was sent: the transaction is usable.

    Attributes:
        sent: What the transaction has sent before: (schema, queue, channel, key), or "completion".
        refused: What came after it although it sorts before it.

    Example:
        >>> with Session(engine) as session:
        ...     message_id = queue.enqueue(session.connection(), channel="b", payload=1, key="invoice-12").message_id
        ...     try:
        ...         receipt = queue.enqueue(session.connection(), channel="a", payload=1, key="invoice-12")
        ...     except LockOrderError as error:
        ...         print(error.refused[2:])
        ('a', 'invoice-12')
    """

    def __init__(self, problem: str, sent: object = None, refused: object = None) -> None:
        super().__init__(problem, sent, refused)
        self.sent = sent
        self.refused = refused


class AutocommitError(FairQueueError):
    """Queue work was asked of a connection in AUTOCOMMIT, where it could not be atomic with the business writes.

    Example:
        >>> autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        >>> try:
        ...     with Session(autocommit) as session, session.begin():
        ...         receipt = queue.enqueue(session, channel="customer-7", payload=1)
        ... except AutocommitError as error:
        ...     print(error)
        the connection to ... is in AUTOCOMMIT, where queue work would not be atomic with the business writes; ...
    """


class IsolationError(FairQueueError, codes=("QF003",)):
    """A dequeue, a limit on a whole queue or a migration was asked for in a transaction that it cannot be done in.

    That is one that is not READ COMMITTED, for a migration also one that is read-only.

    Example:
        >>> strict = engine.execution_options(isolation_level="SERIALIZABLE")
        >>> with strict.connect() as connection:
        ...     try:
        ...         queue.configure(connection, max_concurrency=20)
        ...     except IsolationError as error:
        ...         print(error)
        cannot limit queue ...: fq_limit_queue runs in a serializable transaction; run it in a READ COMMITTED ...
    """


class UnsentWork(FairQueueError):
    """Queue work of a transaction that cannot be sent in it any more.

    There are two ways to get here. An earlier commit failed while it sent the work: only a rollback is possible then.
    Or the call came when the transaction had already been committed, prepared or rolled back: from a hook that runs so
    late, or after a failed flush whose error was caught. That error is the cause. Nothing was recorded.

    Example:
        >>> with Session(engine) as session:
        ...     receipt = queue.enqueue(session.connection(), channel="customer-7", payload=1)
        ...     event.listen(session, "after_commit", lambda session: queue.pause(session, "customer-7"))
        ...     try:
        ...         session.commit()
        ...     except UnsentWork as error:
        ...         print(error)
        the transaction was committed or prepared already, so no queue work can be added to it; ...
    """
