"""Records of queue work on a session, from the call to the COMMIT.

A session keeps a record of the work beside its innermost transaction. When a savepoint is released, its record goes to
the parent. When a savepoint or the transaction is rolled back or closed, its record is dropped. The work is sent once:
right before the outermost COMMIT or PREPARE, after the session's own flush. The listeners on the Session class see
every session, so they must stay cheap for sessions that never enqueue. A record holds no reference to its session, so
that it keeps none alive.

Facts about the events (SQLAlchemy 2.0 and 2.1):

* before_commit fires for savepoints too, inside prepare(), and for the outermost transaction while savepoints are open;
* close() fires neither commit nor rollback, only after_transaction_end;
* an exception from before_commit leaves the transaction open;
* after_commit and after_rollback fire before the transaction ends.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import event
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.database.calls import note_failures
from sqlalchemy_fairqueue.errors import UnsentWork
from sqlalchemy_fairqueue.texts import said
from sqlalchemy_fairqueue.unit_of_work.locks import forget, lock_order_of
from sqlalchemy_fairqueue.unit_of_work.sessions import (
    check_bind,
    check_open,
    committed_next,
    connection,
    is_committing,
    listen_last,
    transactions,
)
from sqlalchemy_fairqueue.unit_of_work.statements import commit_with, send_work
from sqlalchemy_fairqueue.unit_of_work.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Connection
    from sqlalchemy.orm import SessionTransaction

    from sqlalchemy_fairqueue.unit_of_work.locks import LockOrder
    from sqlalchemy_fairqueue.unit_of_work.operations import Operation, ReceiptUpdate, Target

# As many as SQLAlchemy itself flushes in a commit before it complains.
_FLUSHES = 100


class _Record:
    """The queue work of one transaction or savepoint of a session.

    Attributes:
        work: Not sent yet.
        updates: For the receipts of the work that was sent, called after the COMMIT.
        connections: Where the outermost transaction has sent work.
        parent: Where work goes now that the savepoint was released.
        sent: The recorded work has gone; what a later hook of the same commit adds is sent at once.
        failure: Why sending failed, as text: the exception itself would keep the session alive.
    """

    __slots__ = ("connections", "failure", "parent", "sent", "updates", "work")

    def __init__(self) -> None:
        self.work: list[Operation] = []
        self.updates: list[ReceiptUpdate] = []
        self.connections: set[Connection] = set()
        self.parent: _Record | None = None
        self.sent = False
        self.failure: str | None = None


_records: WeakKeyDictionary[SessionTransaction, _Record] = WeakKeyDictionary()
# Sessions with a listener of their own. It runs after those of their class, so that what these record is collected.
_listening: WeakSet[Session] = WeakSet()
# In the namespace of a session that these tables may know: to read it costs the others less than a weak reference.
_FLAG = "_fairqueue_has_work"


class Guard(Protocol):
    """Watch over a session."""

    def __call__(self) -> None:
        """Called at the beginning of each commit, which it fails by raising."""

    def failed(self, error: BaseException) -> None:
        """Called with each error of the driver on a connection of the session, as SQLAlchemy raises it."""


_guards: WeakKeyDictionary[Session, Guard] = WeakKeyDictionary()


def guard(session: Session, check: Guard | None) -> None:
    """Let *check* watch over the session's transactions from now on. None ends that."""
    if check is None:
        _guards.pop(session, None)
    else:
        session.__dict__[_FLAG] = True
        _guards[session] = check


def record(session: Session, operations: Sequence[Operation]) -> None:
    """Keep operations of one queue, at least one, until the session's COMMIT.

    Nothing is sent now, unless a COMMIT of the session is under way already and its work has gone: then they are sent
    at once.

    Raises:
        InvalidArgument: The session's engine is on a driver that the queue does not work on.
        UnsentWork: The transaction was committed, prepared or rolled back already, so that they could not be sent.
        LockOrderError: They are sent at once, and one of them sorts before what was sent.
    """
    check_bind(session, operations[0].target)
    root, innermost = transactions(session)
    check_open(root, innermost)
    if is_committing(root) and _is_past(session, root):
        found = _record_of(root)
        found.sent = True
        work = Work()
        work.add(operations, partial(connection, session))
        _send(found, work)
        return
    ours = _record_of(innermost)
    while ours.parent is not None:
        ours = ours.parent
    ours.work.extend(operations)
    _listen(session)


def send_recorded(session: Session) -> None:
    """Send what is recorded at once, as the COMMIT would, and begin the lock order anew.

    For tests that roll back at their end, and nothing else: work that the transaction sends after this may meet another
    transaction's locks in the wrong order.

    Raises:
        UnsentWork: As :func:`record`.
        DuplicateMessage, ChannelFull, LeaseLost: As a COMMIT would.
    """
    root, innermost = transactions(session)
    check_open(root, innermost)
    session.flush()
    found: list[_Record] = []
    transaction: SessionTransaction | None = innermost
    while transaction is not None:
        if (ours := _records.get(transaction)) is not None:
            found.append(ours)
        transaction = transaction.parent
    # The outermost first: its work was recorded before that of the savepoints within.
    work = Work()
    for ours in reversed(found):
        work.add(ours.work, partial(connection, session))
    for ours in found:
        ours.work = []
    updates = send_work(work)
    for where in {*work.connections.values()}:
        forget(where)
    for update in updates:
        update()


def recorded(session: Session) -> list[Operation]:
    """The work that the session's transaction and its open savepoints hold, to be sent at their COMMIT."""
    found: list[Operation] = []
    transaction = session.get_nested_transaction() or session.get_transaction()
    while transaction is not None:
        if (ours := _records.get(transaction)) is not None:
            found += ours.work
        transaction = transaction.parent
    return found


def discard(session: Session, group_id: UUID) -> None:
    """Forget what the session has recorded of a group that it was about to make."""
    transaction = session.get_nested_transaction() or session.get_transaction()
    while transaction is not None:
        if (ours := _records.get(transaction)) is not None:
            ours.work = [one for one in ours.work if getattr(one, "group_id", None) != group_id]
        transaction = transaction.parent


def joined(session: Session, target: Target) -> tuple[Connection, LockOrder]:
    """The session's connection and the lock order of its transaction, for work that is done at once.

    Raises:
        UnsentWork: As :func:`record`.
        AutocommitError: The session is in AUTOCOMMIT.
    """
    root, innermost = transactions(session)
    check_open(root, innermost)
    where = connection(session, target)
    lock_order = lock_order_of(where)
    _record_of(root).connections.add(where)
    return where, lock_order


def _is_past(session: Session, root: SessionTransaction) -> bool:
    """Whether the listener that sends has run already in the commit that is under way."""
    found = _records.get(root)
    # A clean session without a record leaves no trace when its commit passes.
    return session not in _listening if found is None else found.sent


def _record_of(transaction: SessionTransaction) -> _Record:
    found = _records.get(transaction)
    if found is None:
        transaction.session.__dict__[_FLAG] = True
        found = _records.setdefault(transaction, _Record())
    return found


def _listen(session: Session) -> None:
    if session not in _listening:
        session.__dict__[_FLAG] = True
        listen_last(session, _before_outermost_commit)
        _listening.add(session)


def _after_transaction_create(session: Session, transaction: SessionTransaction) -> None:
    # Somebody else listens too, so that ours must come last; with ours alone the class's listener is enough.
    if transaction.parent is None and len(session.dispatch.before_commit) > 1:
        _listen(session)


def _after_begin(session: Session, _: SessionTransaction, connection: Connection) -> None:
    if _guards and (check := _guards.get(session)) is not None:
        note_failures(connection, check.failed)


def _before_commit(session: Session) -> None:
    # SQLAlchemy's own question in its commit; new, deleted and dirty would each make a set.
    if _FLAG not in session.__dict__ and session._is_clean() and not session.in_nested_transaction():  # noqa: SLF001
        return
    if session not in _listening:
        _before_outermost_commit(session)
        return
    # Listeners of the class run first, so that the session's own can still be put in another order.
    listen_last(session, _before_outermost_commit)


def _before_outermost_commit(session: Session) -> None:
    root = session.get_transaction()
    if root is None:
        return
    nested = session.get_nested_transaction()
    if nested is not None:
        if not is_committing(root) or is_committing(nested):
            return
        # The outermost transaction commits over open savepoints: SQLAlchemy would release them next, too late for us.
        while nested is not None:
            nested.commit()
            nested = session.get_nested_transaction()
    if _guards and (check := _guards.get(session)) is not None:
        check()
    found = _records.get(root)
    if found is None:
        if session._is_clean() and session not in _listening:  # noqa: SLF001
            return
        found = _record_of(root)
    if found.failure is not None:
        raise UnsentWork(
            f"the queue work of this transaction could not be sent before ({found.failure}); roll the transaction back"
        )
    found.sent = False
    work = _collected(session, found)
    if work is not None:
        _send(found, work, committed_next(session, _before_outermost_commit))
    found.sent = True


def _collected(session: Session, ours: _Record) -> Work | None:
    """The recorded work, if there is any, once nothing is left to flush: its hooks may record more."""
    collected = None
    for _ in range(_FLUSHES):
        session.flush()
        while ours.work:
            work, ours.work = ours.work, []
            collected = collected or Work()
            try:
                collected.add(work, partial(connection, session))
            except BaseException as error:
                ours.failure = _text(error)
                raise
        if session._is_clean():  # noqa: SLF001
            break
    return collected


def _send(ours: _Record, work: Work, committed: Connection | None = None) -> None:
    """Send work. *committed*: the connection whose COMMIT comes next, with which it may travel."""
    ours.connections.update(work.connections.values())
    try:
        updates = None if committed is None else commit_with(work, committed)
        ours.updates += send_work(work) if updates is None else updates
    except BaseException as error:
        ours.failure = _text(error)
        raise


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {said(error)}"


def _after_commit(session: Session) -> None:
    if _FLAG not in session.__dict__ and not session.in_nested_transaction():
        return
    nested = session.get_nested_transaction()
    if nested is None:
        root = session.get_transaction()
        ours = _records.get(root) if root is not None else None
        if ours is not None:
            updates, ours.updates = ours.updates, []
            for update in updates:
                update()
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


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    if _FLAG not in session.__dict__:
        return
    ours = _records.pop(transaction, None)
    if ours is not None:
        for where in ours.connections:
            forget(where)


event.listen(Session, "after_transaction_create", _after_transaction_create)
event.listen(Session, "after_begin", _after_begin)
event.listen(Session, "before_commit", _before_commit)
# First, so that the hooks of others find receipts filled in and released work with its parent.
event.listen(Session, "after_commit", _after_commit, insert=True)
event.listen(Session, "after_transaction_end", _after_transaction_end)
