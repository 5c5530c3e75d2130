"""Queue work of a session, from the call to the COMMIT.

A session records work beside its innermost transaction. When a savepoint is released, its work goes to the parent's
record. When a savepoint or the transaction is rolled back, or closed without a commit, its record is dropped. The work
is sent once: right before the outermost COMMIT or PREPARE, after the session's own flush. The listeners are on the
Session class and see every session, so they must be cheap for sessions that never enqueue.

Facts about the events (SQLAlchemy 2.0 and 2.1):

* before_commit also fires at the release of a savepoint, inside prepare(), and at a COMMIT while savepoints are open;
* close() fires neither commit nor rollback, only after_transaction_end;
* an exception from before_commit leaves the transaction open;
* after_commit and after_rollback fire before the transaction ends.

SQLAlchemy has no public way to ask whether a commit() is under way or why a transaction is not active, and no cheap
public way to be called last. Only this module uses private names for this, and tests pin their meaning.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection, RootTransaction, event
from sqlalchemy.exc import InvalidRequestError, UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.orm.session import SessionTransactionState

from sqlalchemy_fairqueue.database.asynchronous import AsyncSession, async_scoped_session
from sqlalchemy_fairqueue.database.calls import Target, is_in_autocommit, note_failures
from sqlalchemy_fairqueue.database.drivers import driver_of_dialect
from sqlalchemy_fairqueue.errors import AutocommitError, FairQueueError, UnsentWork
from sqlalchemy_fairqueue.texts import said
from sqlalchemy_fairqueue.unit_of_work.sending import Work, forget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from sqlalchemy_fairqueue.unit_of_work.operations import Operation, ReceiptUpdate

# The most flushes that SQLAlchemy allows in a commit.
_FLUSHES = 100
# The key of the _State in a session's namespace. A look-up there is faster than one by a weak reference.
_STATE = "_fairqueue_state"


@dataclass(slots=True, eq=False)
class _Record:
    """The queue work of one transaction or savepoint of a session.

    Attributes:
        updates: Updates of receipts for sent work, called after the COMMIT.
        connections: Connections whose :class:`LockOrder` is forgotten when the outermost transaction ends.
        parent: The record that takes further work, once the savepoint has been released.
        sent: Whether this commit has sent the recorded work. Work that a hook records later is sent at once.
        failure: Why sending failed, as text, since an exception would keep the session alive.
    """

    work: list[Operation] = field(default_factory=list)
    updates: list[ReceiptUpdate] = field(default_factory=list)
    connections: set[Connection] = field(default_factory=set)
    parent: _Record | None = None
    sent: bool = False
    failure: str | None = None


class Guard(Protocol):
    """Watches over the transactions of a session."""

    def __call__(self) -> None:
        """Raise an exception if the commit that is about to begin must fail."""

    def failed(self, error: BaseException) -> None:
        """Note a driver error on a connection of the session; *error* is the exception that SQLAlchemy raises."""


@dataclass(slots=True, eq=False)
class _State:
    """What we keep of a session. *listens*: our listener is on the session itself too, not only on the class."""

    records: defaultdict[SessionTransaction, _Record] = field(default_factory=partial(defaultdict, _Record))
    listens: bool = False
    guard: Guard | None = None


def session_of(candidate: object) -> Session | None:
    found: Any = candidate
    if isinstance(found, (scoped_session, async_scoped_session)):
        found = found()
    if isinstance(found, AsyncSession):
        found = found.sync_session
    return found if isinstance(found, Session) else None


def guard(session: Session, check: Guard | None) -> None:
    _state_of(session).guard = check


def transactions(session: Session) -> tuple[SessionTransaction, SessionTransaction]:
    """Return the session's outermost and innermost transaction; begin one if the session has none.

    A session without autobegin raises InvalidRequestError instead. If the transaction can send nothing any more, raise
    UnsentWork; its cause is the error of the flush that failed, if one did.
    """
    root = session.get_transaction()
    if root is None:
        if not session.autobegin:
            raise InvalidRequestError("autobegin is disabled on this Session; call session.begin() before queue work")
        root = session.begin()
    innermost = session.get_nested_transaction() or root
    root_state, state = getattr(root, "_state", None), getattr(innermost, "_state", None)
    if root_state is SessionTransactionState.ACTIVE and state is root_state:
        return root, innermost
    if SessionTransactionState.DEACTIVE in (root_state, state):
        # The exception refers to the session, so it must not be stored.
        failure = getattr(innermost, "_rollback_exception", None) or getattr(root, "_rollback_exception", None)
        if failure is not None:
            raise UnsentWork(
                "a flush failed and rolled the transaction back, so no queue work can be added to it "
                f"({type(failure).__name__}: {said(failure)}); let the error out, or call rollback() after it, "
                "or flush what may fail within begin_nested()"
            ) from failure
        raise UnsentWork(
            "the transaction was rolled back, so no queue work can be added to it; call rollback() first, "
            "or enqueue in after_soft_rollback when the session is active again"
        )
    if root_state in (SessionTransactionState.COMMITTED, SessionTransactionState.PREPARED):
        raise UnsentWork(
            "the transaction was committed or prepared already, so no queue work can be added to it; "
            "enqueue in before_commit, or in a transaction of its own"
        )
    return root, innermost


def connection_of(session: Session, target: Target) -> Connection:
    try:
        return session.connection(bind_arguments=dict(target.bind_arguments or {}))
    except AssertionError as error:
        # A ShardedSession fails by an assertion if it finds no shard.
        if not hasattr(session, "shard_chooser"):
            raise
        raise FairQueueError(
            f"the session finds no shard for queue {target.queue!r}; say which one holds the queue, by "
            "Queue(bind_arguments={'shard_id': ...})"
        ) from error
    except UnboundExecutionError as error:
        raise FairQueueError(
            f"the session has no engine for queue {target.queue!r}: {error}; "
            "bind the session to one, or say which by Queue(bind_arguments={'mapper': SomeModel})"
        ) from error


def joined(session: Session, target: Target) -> Connection:
    """Return the session's connection for work that is sent at once and takes part in the lock order."""
    root, _ = transactions(session)
    found = connection_of(session, target)
    _state_of(session).records[root].connections.add(found)
    return found


def record(session: Session, operations: Sequence[Operation]) -> None:
    """Keep one or more operations of one queue until the session's COMMIT. Raise as :func:`transactions` does.

    If a COMMIT under way has sent the recorded work already, send the operations at once, as :meth:`Work.send` does.
    """
    target, bind = operations[0].target, session.bind
    if bind is None or target.bind_arguments or type(session).get_bind is not Session.get_bind:
        # The session may choose its engine by facts that are known only at the commit.
        bind = None
        with contextlib.suppress(Exception):
            bind = session.get_bind(**(target.bind_arguments or {}))
    if bind is not None:
        # Raises InvalidArgument for another database or driver.
        driver_of_dialect(bind.dialect.name, bind.dialect.driver)
    root, innermost = transactions(session)
    state = _state_of(session)
    if getattr(root, "_current_fn", None) is not None and is_committing(root):
        ours = state.records.get(root)
        # No record: if our listener is only on the Session class, it found the session clean and left no trace, so the
        # work counts as sent. If ``listens``, our listener on the session, which always makes a record, has not been
        # called yet.
        if not state.listens if ours is None else ours.sent:
            ours = state.records[root]
            ours.sent = True
            work = Work(partial(connection_of, session))
            work.add(operations)
            _send(ours, work)
            return
    ours = state.records[innermost]
    while ours.parent is not None:
        ours = ours.parent
    ours.work += operations
    if not state.listens and len(session.dispatch.before_commit) > 1:
        _listen(session, state)


def send_recorded(session: Session) -> None:
    """Send recorded work at once, and begin the lock order anew. Only for tests that roll back at their end."""
    transactions(session)
    session.flush()
    work = Work(partial(connection_of, session))
    work.add(recorded(session))
    for ours in _records(session):
        ours.work = []
    updates = work.send()
    for where in work.ordered:
        forget(where)
    for update in updates:
        update()


def recorded(session: Session) -> list[Operation]:
    # The outermost first: its work was recorded before that of the savepoints within.
    return [operation for ours in reversed(list(_records(session))) for operation in ours.work]


def discard(session: Session, group_id: UUID) -> None:
    for ours in _records(session):
        ours.work = [one for one in ours.work if getattr(one, "group_id", None) != group_id]


def _records(session: Session) -> Iterator[_Record]:
    state: _State | None = session.__dict__.get(_STATE)
    transaction = session.get_nested_transaction() or session.get_transaction()
    while state is not None and transaction is not None:
        if (ours := state.records.get(transaction)) is not None:
            yield ours
        transaction = transaction.parent


def is_committing(transaction: SessionTransaction) -> bool:
    """Return whether commit() or prepare() of this transaction is under way and can still send statements."""
    doing = getattr(transaction, "_current_fn", None)
    return getattr(doing, "__name__", None) in {"commit", "_prepare_impl"} and transaction.is_active


def _state_of(session: Session) -> _State:
    state: _State | None = session.__dict__.get(_STATE)
    if state is None:
        state = session.__dict__[_STATE] = _State()
    return state


def _listen(session: Session, state: _State) -> None:
    """Call our listener before each commit of the session, after all present hooks."""
    state.listens = True
    # The list is changed by hand: event.listen() also keeps records for event.remove(), which takes longer than all
    # that an enqueue does before the commit.
    dispatch = session.dispatch
    hooks = dispatch.before_commit.for_modify(dispatch).listeners
    if not hooks or hooks[-1] is not _before_outermost_commit:
        with contextlib.suppress(ValueError):
            hooks.remove(_before_outermost_commit)
        hooks.append(_before_outermost_commit)


def _after_transaction_create(session: Session, transaction: SessionTransaction) -> None:
    # If somebody else listens too, that listener may record work, so ours must be called after it.
    if transaction.parent is None and len(session.dispatch.before_commit) > 1:
        _listen(session, _state_of(session))


def _after_begin(session: Session, _: SessionTransaction, connection: Connection) -> None:
    state: _State | None = session.__dict__.get(_STATE)
    if state is not None and state.guard is not None:
        # Engines of other tables may be in AUTOCOMMIT.
        if session.bind is not None and connection.engine is session.bind.engine and is_in_autocommit(connection):
            raise AutocommitError(
                f"the handler's session on {connection.engine.url.render_as_string()} is in AUTOCOMMIT, where what it "
                "writes stays if the attempt fails; give the worker an engine or a session_factory without "
                "isolation_level='AUTOCOMMIT'"
            )
        note_failures(connection, state.guard.failed)


def _before_commit(session: Session) -> None:
    state: _State | None = session.__dict__.get(_STATE)
    # SQLAlchemy's own check, since ``new``, ``deleted`` and ``dirty`` would each create a set.
    if state is None and session._is_clean() and not session.in_nested_transaction():  # noqa: SLF001
        return
    # Listeners of the class run first, so the order of the session's own can still be changed here.
    own: Any = session.dispatch.before_commit
    if not own.listeners:
        _before_outermost_commit(session)
    elif own.listeners[-1] is not _before_outermost_commit:
        _listen(session, _state_of(session))


def _before_outermost_commit(session: Session) -> None:
    root = session.get_transaction()
    if root is None:
        return
    while (nested := session.get_nested_transaction()) is not None:
        if not is_committing(root) or is_committing(nested):
            return
        # The outermost transaction commits while savepoints are open. SQLAlchemy would release them after our work.
        nested.commit()
    state = session.__dict__.get(_STATE) or _state_of(session)
    if state.guard is not None:
        state.guard()
    ours = state.records.get(root)
    if ours is None:
        if session._is_clean() and not state.listens:  # noqa: SLF001
            return
        ours = state.records[root]
    if ours.failure is not None:
        raise UnsentWork(
            f"the queue work of this transaction could not be sent before ({ours.failure}); roll the transaction back"
        )
    ours.sent = False
    work = _collected(session, ours)
    if work.operations:
        _send(ours, work, _committed_next(session, root))
    ours.sent = True


def _collected(session: Session, ours: _Record) -> Work:
    """Flush until the session is clean, and take the work out of *ours*. Hooks of a flush may record more work."""
    work = Work(partial(connection_of, session))
    for _ in range(_FLUSHES):
        session.flush()
        while ours.work:
            recorded_now, ours.work = ours.work, []
            try:
                work.add(recorded_now)
            except BaseException as error:
                ours.failure = _text(error)
                raise
        if session._is_clean():  # noqa: SLF001
            break
    return work


def _committed_next(session: Session, root: SessionTransaction) -> Connection | None:
    """Return the session's only connection if, after the flush, nothing but its COMMIT follows; otherwise None."""
    [*_, last] = session.dispatch.before_commit
    if session.twophase or last not in (_before_commit, _before_outermost_commit):
        return None
    # SQLAlchemy keeps one value under the connection and again under its engine. The value is (connection, transaction,
    # whether the session commits the transaction, ...).
    known = set(getattr(root, "_connections", {}).values())
    if len(known) != 1:
        return None
    [(found, transaction, is_own, *_)] = known
    return found if is_own and type(transaction) is RootTransaction else None


def _send(ours: _Record, work: Work, committing: Connection | None = None) -> None:
    try:
        ours.updates += work.send(committing)
    except BaseException as error:
        ours.failure = _text(error)
        raise
    finally:
        ours.connections |= work.ordered


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {said(error)}"


def _after_commit(session: Session) -> None:
    state: _State | None = session.__dict__.get(_STATE)
    nested = session.get_nested_transaction()
    if nested is None:
        root = session.get_transaction()
        ours = state.records.get(root) if state is not None and root is not None else None
        if ours is not None:
            updates, ours.updates = ours.updates, []
            for update in updates:
                update()
        return
    parent = nested.parent
    while parent is not None and not parent.nested and parent.parent is not None:
        parent = parent.parent
    state = _state_of(session)
    released = state.records[nested]
    if parent is not None:
        # The record is kept until the savepoint has ended, for hooks that record while it ends.
        released.parent = state.records[parent]
        released.parent.work += released.work
        released.work = []


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    state: _State | None = session.__dict__.get(_STATE)
    ours = None if state is None else state.records.pop(transaction, None)
    if ours is not None:
        for where in ours.connections:
            forget(where)


event.listen(Session, "after_transaction_create", _after_transaction_create)
event.listen(Session, "after_begin", _after_begin)
event.listen(Session, "before_commit", _before_commit)
# Inserted first, so that hooks of others find receipts filled in, and the work of a released savepoint at its parent.
event.listen(Session, "after_commit", _after_commit, insert=True)
event.listen(Session, "after_transaction_end", _after_transaction_end)
