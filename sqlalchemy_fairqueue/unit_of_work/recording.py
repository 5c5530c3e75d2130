"""Queue work recorded on a session, from the call to the COMMIT.

What is asked of a session is kept beside its innermost transaction: it goes up to the parent when a savepoint is
released, is gone when a savepoint or the transaction is rolled back or closed, and is sent once, right before the
outermost COMMIT or PREPARE, after the session's own flush. Listeners on the Session class see every session; they must
stay cheap for those that never enqueue, and must keep nothing alive: a record holds no reference to its session.

Facts about the events (SQLAlchemy 2.0 and 2.1): before_commit fires for savepoints too, inside prepare(), and for the
outermost transaction while savepoints are still open; close() fires neither commit nor rollback, only
after_transaction_end; an exception from before_commit leaves the transaction open; after_commit and after_rollback fire
before the transaction ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import event
from sqlalchemy.exc import InvalidRequestError, UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from sqlalchemy_fairqueue.errors import FairQueueError, UnsentWork
from sqlalchemy_fairqueue.unit_of_work.ledger import forget
from sqlalchemy_fairqueue.unit_of_work.sending import send_placed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection
    from sqlalchemy.orm import SessionTransaction

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation, Target
    from sqlalchemy_fairqueue.unit_of_work.sending import Outcome

# As many as SQLAlchemy itself flushes in a commit before it complains.
_FLUSHES = 100


class _Record:
    """The queue work of one transaction or savepoint of a session.

    Attributes:
        work: Not sent yet.
        outcomes: What became of the enqueues that were sent, told to their receipts after the COMMIT.
        connections: Where the outermost transaction has sent work.
        parent: Where work goes now that the savepoint was released.
        rolled_back: The transaction was rolled back, but has not ended yet.
        failure: Why sending failed, in words: the exception itself would keep the session alive.
    """

    __slots__ = ("connections", "failure", "outcomes", "parent", "rolled_back", "work")

    def __init__(self) -> None:
        self.work: list[Operation] = []
        self.outcomes: list[Outcome] = []
        self.connections: set[Connection] = set()
        self.parent: _Record | None = None
        self.rolled_back = False
        self.failure: str | None = None


_records: WeakKeyDictionary[SessionTransaction, _Record] = WeakKeyDictionary()
# Outermost transactions whose recorded work has gone; what a later commit hook adds is sent at once.
_closing: WeakSet[SessionTransaction] = WeakSet()
# Sessions with a listener of their own: it runs after those of their class, so that what these record is still
# collected.
_listening: WeakSet[Session] = WeakSet()


def session_of(candidate: Any) -> Session | None:
    """The Session behind a Session, AsyncSession, scoped_session or async_scoped_session; None for anything else."""
    if isinstance(candidate, (scoped_session, async_scoped_session)):
        candidate = candidate()
    if isinstance(candidate, AsyncSession):
        candidate = candidate.sync_session
    return candidate if isinstance(candidate, Session) else None


def record(session: Session, operations: Iterable[Operation]) -> None:
    """Keep operations until the session's COMMIT.

    Nothing is sent now, unless a COMMIT of the session is under way already and its work has gone: then they are sent
    at once.

    Raises:
        UnsentWork: The transaction was committed, prepared or rolled back already, so that they could not be sent.
        LockOrderError: They are sent at once, and one of them sorts before what was sent.
    """
    root, innermost = _transactions(session)
    if root in _closing:
        if not root.is_active:
            raise UnsentWork(
                "the transaction was committed or prepared already, so that queue work can join it no more; "
                "enqueue in before_commit, or in a transaction of its own"
            )
        if _state_is_changing(root):
            _send(session, [(_connection(session, operation.target), operation) for operation in operations])
            return
        # That commit failed after its work had gone; the transaction goes on and will commit again.
        _closing.discard(root)
    ours = _record_of(innermost)
    while ours.parent is not None:
        ours = ours.parent
    if ours.rolled_back:
        raise UnsentWork(
            "the transaction was rolled back, so that queue work can join it no more; call rollback() first, "
            "or enqueue in after_soft_rollback when the session is active again"
        )
    ours.work.extend(operations)
    _listen(session)


def send_now(session: Session, operations: list[Operation]) -> list[Outcome]:
    """Send operations at once in the session's transaction.

    Raises:
        LockOrderError: One of them sorts before what the transaction has sent; nothing was sent.
    """
    root, _ = _transactions(session)
    placed = [(_connection(session, operation.target), operation) for operation in operations]
    _record_of(root).connections.update(connection for connection, _ in placed)
    return send_placed(placed)


def _transactions(session: Session) -> tuple[SessionTransaction, SessionTransaction]:
    if not session.in_transaction():
        if not session.autobegin:
            raise InvalidRequestError("autobegin is disabled on this Session; call session.begin() before queue work")
        session.begin()
    root = session.get_transaction()
    if root is None:
        raise FairQueueError(f"session {session!r} has no transaction after begin(); give a session of SQLAlchemy 2")
    return root, session.get_nested_transaction() or root


def _record_of(transaction: SessionTransaction) -> _Record:
    found = _records.get(transaction)
    return _records.setdefault(transaction, _Record()) if found is None else found


def _connection(session: Session, target: Target) -> Connection:
    try:
        return session.connection(bind_arguments=dict(target.bind_arguments or {}))
    except UnboundExecutionError as error:
        raise FairQueueError(
            f"the session has no engine for queue {target.queue!r}: {error}; "
            "bind the session to one, or say which by Queue(bind_arguments={'mapper': SomeModel})"
        ) from error


def _state_is_changing(transaction: SessionTransaction) -> bool:
    # SQLAlchemy has no public word for "commit() of this very transaction is under way".
    return getattr(transaction, "_current_fn", None) is not None


def _listen(session: Session) -> None:
    if session not in _listening:
        event.listen(session, "before_commit", _before_outermost_commit)
        _listening.add(session)


def _after_transaction_create(session: Session, transaction: SessionTransaction) -> None:
    # Somebody else listens too, so that ours must come last; with ours alone the class's listener is enough.
    if transaction.parent is None and len(session.dispatch.before_commit) > 1:
        _listen(session)


def _before_commit(session: Session) -> None:
    if session not in _listening:
        _before_outermost_commit(session)
        return
    *_, last = session.dispatch.before_commit
    if last is not _before_outermost_commit:
        # Listeners of the class run first, so that the session's own can still be put in another order.
        event.remove(session, "before_commit", _before_outermost_commit)
        event.listen(session, "before_commit", _before_outermost_commit)


def _before_outermost_commit(session: Session) -> None:
    root = session.get_transaction()
    if root is None:
        return
    nested = session.get_nested_transaction()
    if nested is not None:
        if not _state_is_changing(root) or _state_is_changing(nested):
            return
        # The outermost transaction commits over open savepoints: SQLAlchemy would release them next, too late for their
        # work.
        while nested is not None:
            nested.commit()
            nested = session.get_nested_transaction()
    found = _records.get(root)
    if found is not None and found.failure is not None:
        raise UnsentWork(
            f"the queue work of this transaction could not be sent before ({found.failure}); roll the transaction back"
        )
    if placed := _collected(session, root):
        _send(session, placed)
    _closing.add(root)


def _collected(session: Session, root: SessionTransaction) -> list[tuple[Connection, Operation]]:
    """What was recorded, with its connections, once nothing is left to flush: its hooks may record more."""
    placed: list[tuple[Connection, Operation]] = []
    for _ in range(_FLUSHES):
        session.flush()
        found = _records.get(root)
        while found is not None and found.work:
            work, found.work = found.work, []
            try:
                placed += [(_connection(session, operation.target), operation) for operation in work]
            except BaseException as error:
                found.failure = _words(error)
                raise
        if not (session.new or session.deleted or session.dirty):
            break
    return placed


def _send(session: Session, placed: list[tuple[Connection, Operation]]) -> None:
    root, _ = _transactions(session)
    ours = _record_of(root)
    ours.connections.update(connection for connection, _ in placed)
    try:
        ours.outcomes += send_placed(placed)
    except BaseException as error:
        ours.failure = _words(error)
        raise


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _after_commit(session: Session) -> None:
    nested = session.get_nested_transaction()
    if nested is None:
        root = session.get_transaction()
        ours = _records.get(root) if root is not None else None
        if ours is not None:
            outcomes, ours.outcomes = ours.outcomes, []
            for receipt, message_id, created in outcomes:
                receipt.message_id = message_id
                receipt.created = created
        return
    parent = nested.parent
    while parent is not None and not parent.nested and parent.parent is not None:
        parent = parent.parent
    released = _record_of(nested)
    if parent is not None:
        # Kept until it ends, for hooks that record while it does.
        released.parent = _record_of(parent)
        released.parent.work.extend(released.work)
        released.work = []


def _after_rollback(session: Session) -> None:
    transaction = session.get_nested_transaction() or session.get_transaction()
    if transaction is not None:
        ours = _record_of(transaction)
        ours.rolled_back = True
        ours.work = []


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:  # noqa: ARG001 - the event's signature
    ended = _records.pop(transaction, None)
    if ended is not None:
        for connection in ended.connections:
            forget(connection)


event.listen(Session, "after_transaction_create", _after_transaction_create)
event.listen(Session, "before_commit", _before_commit)
# First, so that the hooks of others find receipts filled in and released work in its place.
event.listen(Session, "after_commit", _after_commit, insert=True)
event.listen(Session, "after_rollback", _after_rollback, insert=True)
event.listen(Session, "after_transaction_end", _after_transaction_end)
