"""Sessions of tests: transactions that are rolled back, and handlers that run inline at each commit."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine, AsyncSession
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.testing.performing import Performed, drain
from sqlalchemy_fairqueue.unit_of_work import session_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from sqlalchemy import Engine
    from sqlalchemy.orm import SessionTransaction

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.base import AnySession

_COMMITTED = "fairqueue_inline_committed"


@contextmanager
def rolled_back(engine: Engine, **options: Any) -> Iterator[Session]:
    """A session in a transaction that is rolled back at the end of the block.

    A ``commit()`` of the code under test sends the queue work, and ends only a savepoint.

    Args:
        engine: The database.
        options: Further arguments of the Session.
    """
    with engine.connect() as connection, connection.begin() as transaction:
        with Session(connection, join_transaction_mode="create_savepoint", **options) as session:
            yield session
        transaction.rollback()


@asynccontextmanager
async def arolled_back(engine: AsyncEngine, **options: Any) -> AsyncIterator[AsyncSession]:
    """As :func:`rolled_back`, an AsyncSession."""
    async with engine.connect() as connection, connection.begin() as transaction:
        async with AsyncSession(connection, join_transaction_mode="create_savepoint", **options) as session:
            yield session
        await transaction.rollback()


@contextmanager
def inline(
    session: AnySession, *queues: Queue, resources: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[list[Performed]]:
    """Perform what the session has enqueued at each of its commits, before ``commit()`` returns.

    As :func:`drain` does, on the session's own connection, so that a test that rolls back leaves nothing behind.
    Handlers that take a session get one of their own on that connection. What is due later stays; after
    ``clock.advance(...)`` the next commit performs it.

    Args:
        session: A Session or scoped_session, such as one that :func:`rolled_back` made.
        queues: The queues whose handlers run. Their handlers must be plain functions.
        resources: What on_start functions would give, by their names; they are not called.

    Yields:
        What was performed so far, in order: the list grows.

    Raises:
        InvalidArgument: It is no Session, or its engine is not that of one connection: nothing could be rolled back.
        Exception: From the ``commit()``: what a handler raised.
    """
    found = session_of(session)
    if found is None or isinstance(session, AsyncSession):
        raise InvalidArgument(f"session is {session!r:.80}; give the Session in which the code under test works")
    bind = found.bind
    if bind is None or not hasattr(bind, "in_transaction"):
        raise InvalidArgument(
            f"session works on {bind!r:.80}, and inline needs one that joined a connection's transaction; make it with "
            "rolled_back(engine)"
        )
    performed: list[Performed] = []

    def note(committed: Session) -> None:
        committed.info[_COMMITTED] = True

    def perform(ended: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is not None or not ended.info.pop(_COMMITTED, False):
            return
        for queue in queues:
            with Session(bind, join_transaction_mode="create_savepoint") as own:
                performed.extend(drain(own, queue, resources=resources))
                own.commit()

    event.listen(found, "after_commit", note)
    event.listen(found, "after_transaction_end", perform)
    try:
        yield performed
    finally:
        event.remove(found, "after_commit", note)
        event.remove(found, "after_transaction_end", perform)
