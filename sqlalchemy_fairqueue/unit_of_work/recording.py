"""Queue work recorded on a session, from the call to the COMMIT.

What is asked of a session is kept beside its innermost transaction: it goes up to the parent when a savepoint is released, is
gone when a savepoint or the transaction is rolled back or closed, and is sent once, right before the outermost COMMIT or PREPARE, after
the session's own flush. Listeners on the Session class see every session; they must stay cheap for those that never enqueue.

Facts about the events (SQLAlchemy 2.0 and 2.1): before_commit fires for savepoints too and inside prepare(); close() fires neither
commit nor rollback, only after_transaction_end; an exception from before_commit leaves the transaction open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import event
from sqlalchemy.exc import InvalidRequestError, UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from sqlalchemy_fairqueue.errors import FairQueueError, UnsentWork
from sqlalchemy_fairqueue.unit_of_work.sending import send

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import SessionTransaction

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation, Target
    from sqlalchemy_fairqueue.unit_of_work.sending import Outcome

_FLUSHES = 100


class _Record:
    """The queue work of one transaction or savepoint of a session.

    Attributes:
        work: Not sent yet.
        outcomes: What became of the enqueues that were sent, told to their receipts after the COMMIT.
        closing: The work was sent for the COMMIT that is under way; what still comes, from a commit hook, is sent at once.
        failure: Why sending failed; from then on the transaction can only be rolled back.
    """

    __slots__ = ("closing", "failure", "outcomes", "work")

    def __init__(self) -> None:
        self.work: list[Operation] = []
        self.outcomes: list[Outcome] = []
        self.closing = False
        self.failure: BaseException | None = None


_records: WeakKeyDictionary[SessionTransaction, _Record] = WeakKeyDictionary()
_listening: WeakSet[Session] = WeakSet()


def session_of(candidate: Any) -> Session | None:
    """The Session behind a Session, AsyncSession, scoped_session or async_scoped_session; None for anything else."""
    if isinstance(candidate, (scoped_session, async_scoped_session)):
        candidate = candidate()
    if isinstance(candidate, AsyncSession):
        candidate = candidate.sync_session
    return candidate if isinstance(candidate, Session) else None


def connection_of(session: Session, target: Target) -> Connection:
    """The session's connection to the database that holds the queue.

    Raises:
        FairQueueError: The session has several engines or none, and the queue does not say which.
    """
    try:
        return session.connection(bind_arguments=dict(target.bind_arguments or {}))
    except UnboundExecutionError as error:
        raise FairQueueError(
            f"the session has no engine for queue {target.queue!r}: {error}; "
            "bind the session to one, or say which by Queue(bind_arguments={'mapper': SomeModel})"
        ) from error


def record(session: Session, operations: list[Operation]) -> None:
    """Keep operations until the session's COMMIT.

    Nothing is sent now, unless a COMMIT of the session is under way already and its work has gone: then they are sent at once.

    Raises:
        LockOrderError: In that case only, when one of them sorts before what was sent.
    """
    if not session.in_transaction():
        if not session.autobegin:
            raise InvalidRequestError("autobegin is disabled on this Session; call session.begin() before queue work")
        session.begin()
    root = session.get_transaction()
    innermost = session.get_nested_transaction() or root
    if root is None or innermost is None:
        raise FairQueueError(f"session {session!r} has no transaction after begin(); give a session of SQLAlchemy 2")
    closing = _records.get(root)
    if closing is not None and closing.closing:
        _send(session, closing, operations)
        return
    _records.setdefault(innermost, _Record()).work.extend(operations)
    if session not in _listening:
        # A listener of the session itself runs after those of its class, so that what their hooks enqueue is still collected.
        event.listen(session, "before_commit", _before_outermost_commit)
        _listening.add(session)


def _before_commit(session: Session) -> None:
    if session not in _listening:
        _before_outermost_commit(session)


def _before_outermost_commit(session: Session) -> None:
    root = session.get_transaction()
    if root is None or session.in_nested_transaction():
        return
    found = _records.get(root)
    if found is not None and found.failure is not None:
        raise UnsentWork(
            f"the queue work of this transaction could not be sent before ({found.failure}); roll the transaction back"
        ) from found.failure
    for _ in range(_FLUSHES):
        session.flush()
        if not (session.new or session.deleted or session.dirty):
            break
    ours = _records.setdefault(root, _Record())
    work, ours.work = ours.work, []
    if work:
        _send(session, ours, work)
    ours.closing = True


def _send(session: Session, ours: _Record, work: list[Operation]) -> None:
    by_connection: dict[Connection, list[Operation]] = {}
    try:
        for operation in work:
            by_connection.setdefault(connection_of(session, operation.target), []).append(operation)
        for connection, operations in by_connection.items():
            ours.outcomes += send(connection, operations)
    except BaseException as error:
        ours.failure = error
        raise


def _after_commit(session: Session) -> None:
    nested = session.get_nested_transaction()
    if nested is None:
        root = session.get_transaction()
        ours = _records.get(root) if root is not None else None
        if ours is not None:
            for receipt, message_id, created in ours.outcomes:
                receipt.message_id = message_id
                receipt.created = created
            ours.outcomes = []
        return
    released = _records.pop(nested, None)
    if released is not None:
        parent = nested.parent
        while parent is not None and not parent.nested and parent.parent is not None:
            parent = parent.parent
        if parent is not None:
            _records.setdefault(parent, _Record()).work.extend(released.work)


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:  # noqa: ARG001 (the event's signature)
    _records.pop(transaction, None)


event.listen(Session, "before_commit", _before_commit)
event.listen(Session, "after_commit", _after_commit)
event.listen(Session, "after_transaction_end", _after_transaction_end)
