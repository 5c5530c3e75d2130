"""Transactions of a session, and their state. This module may begin a transaction, and changes nothing else.

SQLAlchemy has no public way to ask whether the commit() of a transaction is under way, or why a transaction is not
active, and no cheap public way to be called last. Only this module uses the private names for that, and tests pin their
meaning.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from sqlalchemy import RootTransaction
from sqlalchemy.exc import InvalidRequestError, UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.orm.session import SessionTransactionState

from sqlalchemy_fairqueue.database.asynchronous import AsyncSession, async_scoped_session
from sqlalchemy_fairqueue.database.drivers import driver_of
from sqlalchemy_fairqueue.errors import FairQueueError, UnsentWork
from sqlalchemy_fairqueue.texts import said

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from sqlalchemy.orm import SessionTransaction

    from sqlalchemy_fairqueue.unit_of_work.operations import Target


def session_of(candidate: object) -> Session | None:
    """The Session behind a Session, AsyncSession, scoped_session or async_scoped_session; None for anything else."""
    found: Any = candidate
    if isinstance(found, (scoped_session, async_scoped_session)):
        found = found()
    if isinstance(found, AsyncSession):
        found = found.sync_session
    return found if isinstance(found, Session) else None


def transactions(session: Session) -> tuple[SessionTransaction, SessionTransaction]:
    """The session's outermost and innermost transaction, begun if it has none.

    Raises:
        InvalidRequestError: It has none and may not begin one by itself.
    """
    if not session.in_transaction():
        if not session.autobegin:
            raise InvalidRequestError("autobegin is disabled on this Session; call session.begin() before queue work")
        session.begin()
    root = session.get_transaction()
    if root is None:
        raise FairQueueError(f"session {session!r} has no transaction after begin(); give a session of SQLAlchemy 2")
    return root, session.get_nested_transaction() or root


def connection(session: Session, target: Target) -> Connection:
    """The session's connection to the database that holds the queue.

    Raises:
        FairQueueError: The session has several engines or none, and the queue does not say which.
    """
    try:
        return session.connection(bind_arguments=dict(target.bind_arguments or {}))
    except AssertionError as error:
        # That of a ShardedSession, which says nothing.
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


def check_bind(session: Session, target: Target) -> None:
    """Refuse a queue whose engine is known already, and on a driver that the queue does not work on.

    Raises:
        InvalidArgument: Another database or driver.
    """
    bind = session.bind
    if bind is None or target.bind_arguments or type(session).get_bind is not Session.get_bind:
        # It may choose its engine by what is known only at the commit.
        bind = None
        with contextlib.suppress(Exception):
            bind = session.get_bind(**(target.bind_arguments or {}))
    if bind is not None:
        driver_of(bind)


def check_open(root: SessionTransaction, innermost: SessionTransaction) -> None:
    """Refuse transactions that nothing can be sent in any more, though they have not ended yet.

    Raises:
        UnsentWork: One was rolled back, or the outermost was committed or prepared. Where a flush failed, its error is
            the cause.
    """
    state = getattr(root, "_state", None)
    if SessionTransactionState.DEACTIVE in {state, getattr(innermost, "_state", None)}:
        failure = _failure(innermost) or _failure(root)
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
    if state in {SessionTransactionState.COMMITTED, SessionTransactionState.PREPARED}:
        raise UnsentWork(
            "the transaction was committed or prepared already, so no queue work can be added to it; "
            "enqueue in before_commit, or in a transaction of its own"
        )


def is_committing(transaction: SessionTransaction) -> bool:
    """Whether commit() or prepare() of this very transaction is under way, and statements can still be sent in it."""
    doing = getattr(transaction, "_current_fn", None)
    return getattr(doing, "__name__", None) in {"commit", "_prepare_impl"} and transaction.is_active


def committed_next(session: Session, hook: Callable[[Session], None]) -> Connection | None:
    """The connection whose COMMIT is all that the session's commit still has to send, when *hook* has returned.

    None: there are several connections or none, somebody else's transaction was joined, two phases, or hooks that come
    after *hook*. The session has nothing left to flush.
    """
    root = session.get_transaction()
    if root is None or session.twophase or list(session.dispatch.before_commit)[-1:] != [hook]:
        return None
    # Each connection is there under its engine too: (connection, transaction, whether the session commits it, ...).
    known = set(getattr(root, "_connections", {}).values())
    if len(known) != 1:
        return None
    [(found, transaction, is_own, *_)] = known
    return found if is_own and type(transaction) is RootTransaction else None


def listen_last(session: Session, hook: Callable[[Session], None]) -> None:
    """Call *hook* before each commit of the session, after all other hooks that there are now.

    ``event.listen`` does the same and keeps a register for ``event.remove``, which takes longer than all that an
    enqueue does before its commit.
    """
    dispatch = session.dispatch
    hooks = dispatch.before_commit.for_modify(dispatch).listeners
    if not hooks or hooks[-1] is not hook:
        with contextlib.suppress(ValueError):
            hooks.remove(hook)
        hooks.append(hook)


def _failure(transaction: SessionTransaction) -> BaseException | None:
    """The error of a flush that made SQLAlchemy roll the transaction back. It holds the session: keep it nowhere."""
    return getattr(transaction, "_rollback_exception", None)
