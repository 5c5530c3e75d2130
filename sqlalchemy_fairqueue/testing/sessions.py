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
from sqlalchemy_fairqueue.testing.performing import Performed, drain
from sqlalchemy_fairqueue.unit_of_work.sessions import session_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Engine
    from sqlalchemy.orm import SessionTransaction

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.base import PlainSession

SomeSession = TypeVar("SomeSession", bound=Session)
SomeAsyncSession = TypeVar("SomeAsyncSession", bound=AsyncSession)


@overload
def rolled_back(engine: Engine, *, session_factory: None = None, **options: Any) -> AbstractContextManager[Session]: ...


@overload
def rolled_back(
    engine: Engine, *, session_factory: Callable[..., SomeSession], **options: Any
) -> AbstractContextManager[SomeSession]: ...


@overload
def rolled_back(
    engine: AsyncEngine, *, session_factory: None = None, **options: Any
) -> AbstractAsyncContextManager[AsyncSession]: ...


@overload
def rolled_back(
    engine: AsyncEngine, *, session_factory: Callable[..., SomeAsyncSession], **options: Any
) -> AbstractAsyncContextManager[SomeAsyncSession]: ...


def rolled_back(
    engine: Engine | AsyncEngine, *, session_factory: Callable[..., Any] | None = None, **options: Any
) -> Any:
    """A session in a transaction that is rolled back at the end of the block: ``async with`` of an AsyncEngine.

    A ``commit()`` of the code under test sends the queue work, and ends only a savepoint.

    Args:
        engine: The database.
        session_factory: A sessionmaker of the application, or a class such as SQLModel's Session, that makes the
            session. Default: Session, or AsyncSession with ``expire_on_commit=False``, since code that reads an expired
            attribute fails with MissingGreenlet.
        options: Further arguments of the session.

    Example:
        >>> with rolled_back(engine) as session:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=1)
        ...     session.commit()
        >>> queue.stats(engine).ready
        0
    """
    options = {"join_transaction_mode": "create_savepoint", **options}
    if not isinstance(engine, AsyncEngine):
        return _rolled_back(engine, session_factory or Session, options)
    if session_factory is None:
        session_factory, options = AsyncSession, {"expire_on_commit": False, **options}
    return _async_rolled_back(engine, session_factory, options)


@contextmanager
def _rolled_back(engine: Engine, factory: Callable[..., Session], options: dict[str, Any]) -> Iterator[Session]:
    with engine.connect() as connection, connection.begin() as transaction:
        with factory(bind=connection, **options) as session:
            yield session
        transaction.rollback()


@asynccontextmanager
async def _async_rolled_back(
    engine: AsyncEngine, factory: Callable[..., AsyncSession], options: dict[str, Any]
) -> AsyncIterator[AsyncSession]:
    async with engine.connect() as connection, connection.begin() as transaction:
        async with factory(bind=connection, **options) as session:
            yield session
        await transaction.rollback()


@overload
def inline(
    session: PlainSession,
    *queues: Queue,
    resources: Mapping[str, Any] = MappingProxyType({}),
    session_factory: Callable[..., Session] | None = None,
) -> AbstractContextManager[list[Performed]]: ...


@overload
def inline(
    session: AsyncSession,
    *queues: Queue,
    resources: Mapping[str, Any] = MappingProxyType({}),
    session_factory: Callable[..., AsyncSession] | None = None,
) -> AbstractAsyncContextManager[list[Performed]]: ...


def inline(
    session: Any,
    *queues: Queue,
    resources: Mapping[str, Any] = MappingProxyType({}),
    session_factory: Callable[..., Any] | None = None,
) -> Any:
    """Perform what the session has enqueued at each of its commits, before ``commit()`` returns.

    As :func:`drain` does, on the session's own connection, so that a test that rolls back leaves nothing behind.
    Handlers that take a session get one of their own on that connection. Commits of other sessions on the connection
    perform nothing. What is due later stays; after ``clock.advance(...)`` the next commit performs it. Blocks of the
    same session may be nested: each performs its own queues, the outer block first.

    Args:
        session: A session, such as one that :func:`rolled_back` made. Of an AsyncSession it is an ``async with``.
        queues: The queues whose handlers run. They must be plain functions, unless it is an AsyncSession.
        resources: What on_start functions would give, by their names; they are not called.
        session_factory: What makes the sessions of handlers. Default: the class that they annotate their ``session``
            with, or Session or AsyncSession.

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
        return _async_inline(session, queues, resources, session_factory)
    return _inline(session, queues, resources, session_factory)


@contextmanager
def _inline(
    session: PlainSession,
    queues: Sequence[Queue],
    resources: Mapping[str, Any],
    session_factory: Callable[..., Session] | None,
) -> Iterator[list[Performed]]:
    found, connection = _joined(session)
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
async def _async_inline(
    session: AsyncSession,
    queues: Sequence[Queue],
    resources: Mapping[str, Any],
    session_factory: Callable[..., AsyncSession] | None,
) -> AsyncIterator[list[Performed]]:
    found, _ = _joined(session)
    performed: list[Performed] = []
    factory = session_factory or session_type_of(queues, AsyncSession)

    async def perform() -> None:
        for queue in queues:
            async with factory(bind=session.bind, join_transaction_mode="create_savepoint") as own:
                performed.extend(await drain(own, queue, resources=resources))
                await own.commit()

    # SQLAlchemy calls its events in the greenlet of the commit, which can await.
    with _at_commits(found, lambda: await_only(perform())):
        yield performed


def _joined(session: object) -> tuple[Session, Connection]:
    """The Session, and the connection whose transaction it joined."""
    found = session_of(session)
    if found is None:
        raise InvalidArgument(f"session is {session!r:.80}; give the Session in which the code under test works")
    if not isinstance(found.bind, Connection):
        raise InvalidArgument(
            f"session works on {found.bind!r:.80}, and what runs inline needs one that joined a connection's "
            f"transaction; make it with rolled_back(engine)"
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
