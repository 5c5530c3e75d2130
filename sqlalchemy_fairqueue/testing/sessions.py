"""Sessions of tests: transactions that are rolled back, and handlers that run inline at each commit."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session
from sqlalchemy.util import await_only

from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine, AsyncSession
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.handlers import session_type_of
from sqlalchemy_fairqueue.testing.performing import Performed, adrain, drain
from sqlalchemy_fairqueue.unit_of_work import session_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from sqlalchemy import Engine
    from sqlalchemy.orm import SessionTransaction

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.verbs import AnySession

SomeSession = TypeVar("SomeSession", bound=Session)
SomeAsyncSession = TypeVar("SomeAsyncSession", bound=AsyncSession)


@overload
def rolled_back(engine: Engine, *, session_factory: None = None, **options: Any) -> AbstractContextManager[Session]: ...


@overload
def rolled_back(
    engine: Engine, *, session_factory: Callable[..., SomeSession], **options: Any
) -> AbstractContextManager[SomeSession]: ...


@contextmanager
def rolled_back(
    engine: Engine, *, session_factory: Callable[..., Session] | None = None, **options: Any
) -> Iterator[Any]:
    """A session in a transaction that is rolled back at the end of the block.

    A ``commit()`` of the code under test sends the queue work, and ends only a savepoint.

    Args:
        engine: The database.
        session_factory: A sessionmaker of the application, or a class such as SQLModel's Session, that makes the
            session. Default: Session.
        options: Further arguments of the session.

    Example:
        >>> with rolled_back(engine) as session:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=1)
        ...     session.commit()
        >>> queue.stats(engine).ready
        0
    """
    factory = session_factory or Session
    with engine.connect() as connection, connection.begin() as transaction:
        with factory(bind=connection, join_transaction_mode="create_savepoint", **options) as session:
            yield session
        transaction.rollback()


@overload
def arolled_back(
    engine: AsyncEngine, *, session_factory: None = None, **options: Any
) -> AbstractAsyncContextManager[AsyncSession]: ...


@overload
def arolled_back(
    engine: AsyncEngine, *, session_factory: Callable[..., SomeAsyncSession], **options: Any
) -> AbstractAsyncContextManager[SomeAsyncSession]: ...


@asynccontextmanager
async def arolled_back(
    engine: AsyncEngine, *, session_factory: Callable[..., AsyncSession] | None = None, **options: Any
) -> AsyncIterator[Any]:
    """As :func:`rolled_back`, an AsyncSession.

    Args:
        engine: The database.
        session_factory: An async_sessionmaker of the application, or a class of sessions. Default: AsyncSession with
            ``expire_on_commit=False``, since code that reads an expired attribute fails with MissingGreenlet.
        options: Further arguments of the session.
    """
    if session_factory is None:
        session_factory, options = AsyncSession, {"expire_on_commit": False, **options}
    async with engine.connect() as connection, connection.begin() as transaction:
        async with session_factory(bind=connection, join_transaction_mode="create_savepoint", **options) as session:
            yield session
        await transaction.rollback()


@contextmanager
def inline(
    session: AnySession,
    *queues: Queue,
    resources: Mapping[str, Any] = MappingProxyType({}),
    session_factory: Callable[..., Session] | None = None,
) -> Iterator[list[Performed]]:
    """Perform what the session has enqueued at each of its commits, before ``commit()`` returns.

    As :func:`drain` does, on the session's own connection, so that a test that rolls back leaves nothing behind.
    Handlers that take a session get one of their own on that connection. Commits of other sessions on the connection
    perform nothing. What is due later stays; after ``clock.advance(...)`` the next commit performs it. Blocks of the
    same session may be nested: each performs its own queues, the outer block first.

    Args:
        session: A Session or scoped_session, such as one that :func:`rolled_back` made. Of an AsyncSession use
            :func:`ainline`.
        queues: The queues whose handlers run. Their handlers must be plain functions.
        resources: What on_start functions would give, by their names; they are not called.
        session_factory: What makes the sessions of handlers. Default: Session, or the class that they annotate their
            ``session`` with.

    Yields:
        What was performed so far, in order: the list grows.

    Raises:
        InvalidArgument: It is no Session, or its engine is not that of one connection: nothing could be rolled back.
        Exception: From the ``commit()``: what a handler raised.

    Example:
        >>> @queue.handler("add")
        ... def add(delivery: Delivery) -> None:
        ...     print(sum(delivery.payload))
        >>> with rolled_back(engine) as session, inline(session, queue) as performed:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=[1, 2], kind="add")
        ...     session.commit()
        3
    """
    if isinstance(session, AsyncSession):
        raise InvalidArgument(f"session is {session!r:.80}, an AsyncSession; write async with ainline(session, queue)")
    found, connection = _joined(session, "rolled_back")
    performed: list[Performed] = []
    factory = session_factory or session_type_of(queues, Session)

    def perform() -> None:
        for queue in queues:
            with factory(bind=connection, join_transaction_mode="create_savepoint") as own:
                performed.extend(drain(own, queue, resources=resources))
                own.commit()

    with _at_commits(found, perform):
        yield performed


@asynccontextmanager
async def ainline(
    session: AsyncSession,
    *queues: Queue,
    resources: Mapping[str, Any] = MappingProxyType({}),
    session_factory: Callable[..., AsyncSession] | None = None,
) -> AsyncIterator[list[Performed]]:
    """As :func:`inline`, of an AsyncSession such as one that :func:`arolled_back` made, for async handlers too."""
    if not isinstance(session, AsyncSession):
        raise InvalidArgument(f"session is {session!r:.80}, no AsyncSession; write with inline(session, queue)")
    found, _ = _joined(session, "arolled_back")
    performed: list[Performed] = []
    factory = session_factory or session_type_of(queues, AsyncSession)

    async def perform() -> None:
        for queue in queues:
            async with factory(bind=session.bind, join_transaction_mode="create_savepoint") as own:
                performed.extend(await adrain(own, queue, resources=resources))
                await own.commit()

    # SQLAlchemy calls its events in the greenlet of the commit, which can await.
    with _at_commits(found, lambda: await_only(perform())):
        yield performed


def _joined(session: AnySession, maker: str) -> tuple[Session, Connection]:
    """The Session, and the connection whose transaction it joined."""
    found = session_of(session)
    if found is None:
        raise InvalidArgument(f"session is {session!r:.80}; give the Session in which the code under test works")
    if not isinstance(found.bind, Connection):
        raise InvalidArgument(
            f"session works on {found.bind!r:.80}, and what runs inline needs one that joined a connection's "
            f"transaction; make it with {maker}(engine)"
        )
    return found, found.bind


@contextmanager
def _at_commits(session: Session, perform: Callable[[], object]) -> Iterator[None]:
    """Call *perform* after each commit of the session's outermost transaction, when the session is free again."""
    committed: list[SessionTransaction | None] = []  # of this block: of nested ones each performs its own queues

    def note(session: Session) -> None:
        committed[:] = [session.get_transaction()]

    def ended(_: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            is_committed = transaction in committed
            committed.clear()
            if is_committed:
                perform()

    event.listen(session, "after_commit", note)
    event.listen(session, "after_transaction_end", ended)
    try:
        yield
    finally:
        event.remove(session, "after_commit", note)
        event.remove(session, "after_transaction_end", ended)
