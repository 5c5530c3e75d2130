"""Gives tests sessions that are rolled back, runs handlers inline at commits, and moves the clock of the database."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from sqlalchemy import Connection, event, text
from sqlalchemy.orm import Session
from sqlalchemy.util import greenlet_spawn

from sqlalchemy_fairqueue.database.asynchronous import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.handlers import session_type_of
from sqlalchemy_fairqueue.sql.schema import quoted
from sqlalchemy_fairqueue.testing.enqueued import sync_session_of
from sqlalchemy_fairqueue.testing.performing import NO_RESOURCES, Performed, drained
from sqlalchemy_fairqueue.times import duration, instant, instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.checks import check_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    import typing_extensions
    from sqlalchemy import Engine
    from sqlalchemy.orm import SessionTransaction

    from sqlalchemy_fairqueue.queue import Queue
    from sqlalchemy_fairqueue.queue.base import AnySession

    SomeSession = typing_extensions.TypeVar("SomeSession", bound=Session, default=Session)
    SomeAsyncSession = typing_extensions.TypeVar("SomeAsyncSession", bound=AsyncSession, default=AsyncSession)

_SCHEMA = """
select n.nspname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where p.proname = 'fq_now' and p.pronargs = 0 and (n.nspname = cast(:schema as text) or cast(:schema as text) is null)
"""
# A sequence rather than a table: each transaction sees a new offset at once, and reading it cannot make a SERIALIZABLE
# transaction fail.
_OFFSET = """
create sequence if not exists {schema}.test_clock minvalue -9223372036854775807 start 0;
create or replace function {schema}.fq_now() returns bigint language sql volatile parallel safe security definer as $$
  select (extract(epoch from clock_timestamp()) * 1000000)::bigint + last_value from {schema}.test_clock
$$
"""

_ASYNC = (AsyncSession, async_scoped_session)
_SAVEPOINT: Mapping[str, Any] = {"join_transaction_mode": "create_savepoint"}
T = TypeVar("T")


@overload
def rolled_back(
    engine: Engine, *, session_factory: Callable[..., SomeSession] | None = None, **options: Any
) -> AbstractContextManager[SomeSession]: ...


@overload
def rolled_back(
    engine: AsyncEngine, *, session_factory: Callable[..., SomeAsyncSession] | None = None, **options: Any
) -> AbstractAsyncContextManager[SomeAsyncSession]: ...


def rolled_back(
    engine: Engine | AsyncEngine, *, session_factory: Callable[..., Any] | None = None, **options: Any
) -> Any:
    """Return a context manager that gives a session in a transaction, and at its exit rolls the transaction back.

    For an AsyncEngine use ``async with``. A ``commit()`` of the session sends queue work, and ends only a savepoint.

    Args:
        session_factory: A sessionmaker of the application, or a class such as SQLModel's Session. Default: Session, or
            AsyncSession with ``expire_on_commit=False``, since reading an expired attribute raises MissingGreenlet.
        options: Further arguments of the session.

    Example:
        >>> with rolled_back(engine) as session:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=1)
        ...     session.commit()
        >>> queue.stats(engine).ready
        0
    """
    if session_factory is None and isinstance(engine, AsyncEngine):
        session_factory, options = AsyncSession, {"expire_on_commit": False, **options}
    return Block(_rolled_back(engine, session_factory or Session, {**_SAVEPOINT, **options}))


@contextmanager
def _rolled_back(engine: Engine | AsyncEngine, factory: Callable[..., Any], options: dict[str, Any]) -> Iterator[Any]:
    plain = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    with plain.connect() as connection:
        connection.begin()
        bind = AsyncConnection(engine, connection) if isinstance(engine, AsyncEngine) else connection
        session = factory(bind=bind, **options)
        with closing(sync_session_of(session)):
            yield session


def inline(
    session: AnySession,
    *queues: Queue,
    resources: Mapping[str, Any] = NO_RESOURCES,
    session_factory: Callable[..., Any] | None = None,
) -> Block[list[Performed]]:
    """Perform what the session has enqueued, at each of its commits in a ``with`` block, before ``commit()`` returns.

    Messages are performed as by :func:`drain`, so a test that rolls back leaves nothing behind. Unlike with ``drain``,
    handlers do not get *session*: at each commit, all handlers of a queue get one new session on the same connection.
    Messages due later stay. After :meth:`DatabaseClock.advance` the next commit performs them if they are due.

    Args:
        session: For instance from :func:`rolled_back`. For an AsyncSession use ``async with``.
        queues: The queues whose handlers run. On a plain session the handlers must be plain functions.
        resources: As for :func:`perform`.
        session_factory: Creates the sessions of handlers. Default: the class that handlers annotate ``session`` with,
            or else Session or AsyncSession.

    Yields:
        What was performed so far, in order; the list grows.

    Raises:
        InvalidArgument: *session* is no session, or is not bound to a connection, so that nothing could be rolled back.
        Exception: ``commit()`` raises what :func:`drain` would raise.

    Example:
        >>> @queue.handler("add")
        ... def add(delivery: Delivery) -> None:
        ...     print(sum(delivery.payload))
        >>> with rolled_back(engine) as session, inline(session, queue) as performed:
        ...     receipt = queue.enqueue(session, channel="customer-7", payload=[1, 2], kind="add")
        ...     session.commit()
        3
    """
    base = AsyncSession if isinstance(session, _ASYNC) else Session
    return Block(_inline(session, queues, resources, session_factory or session_type_of(queues, base)))


class Block(Generic[T]):
    """A sync and async context manager. With ``async with``, entry and exit run in a greenlet of SQLAlchemy."""

    def __init__(self, block: AbstractContextManager[T]) -> None:
        self._block: Any = block

    def __enter__(self) -> T:
        entered: T = self._block.__enter__()
        return entered

    def __exit__(self, *error: object) -> None:
        self._block.__exit__(*error)

    async def __aenter__(self) -> T:
        return await greenlet_spawn(self._block.__enter__)

    async def __aexit__(self, *error: object) -> None:
        await greenlet_spawn(self._block.__exit__, *error)


@contextmanager
def _inline(
    session: object, queues: Sequence[Queue], resources: Mapping[str, Any], factory: Callable[..., Any]
) -> Iterator[list[Performed]]:
    found = sync_session_of(session)
    if not isinstance(found.bind, Connection):
        raise InvalidArgument(
            f"session works on {found.bind!r:.80}, and what runs inline needs one that joined a connection's "
            f"transaction; make it with rolled_back(engine)"
        )
    bind = session.bind if isinstance(session, _ASYNC) else found.bind
    performed: list[Performed] = []
    committed: SessionTransaction | None = None

    def note(session: Session) -> None:
        nonlocal committed
        if not session.in_nested_transaction():
            committed = session.get_transaction()

    def perform(_: Session, transaction: SessionTransaction) -> None:
        if transaction is not committed:
            return
        # SQLAlchemy calls its events in the greenlet of the commit, in which async handlers can be awaited.
        for queue in queues:
            own = factory(bind=bind, **_SAVEPOINT)
            with closing(sync_session_of(own)) as plain:
                performed.extend(drained(plain, own, queue, resources=resources))
                plain.commit()

    event.listen(found, "after_commit", note)
    # The session is free again only when its transaction has ended.
    event.listen(found, "after_transaction_end", perform)
    try:
        yield performed
    finally:
        event.remove(found, "after_commit", note)
        event.remove(found, "after_transaction_end", perform)


class DatabaseClock:
    """The clock of the library: it decides what is due, which leases have ended, and when a rate allows messages.

    This class replaces the SQL function that tells the time, for all connections: the new function adds an offset. Use
    the class only in databases of tests, since the new function stays there: :meth:`reset` sets only the offset to
    zero. InvalidArgument is raised if *schema* has no installation. If *schema* is None, InvalidArgument is raised
    unless the database has exactly one installation.

    Example:
        >>> clock = DatabaseClock(engine)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(days=3))
        >>> clock.advance(timedelta(days=2))
        >>> clock.move_to(clock.now() + timedelta(days=1))
        >>> len(queue.dequeue(engine))
        1
        >>> clock.reset()
    """

    def __init__(self, engine: Engine, schema: str | None = None) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        with self._engine.connect() as connection:
            found = connection.scalars(text(_SCHEMA), {"schema": schema}).all()
            if len(found) != 1:
                where = "the database" if schema is None else f"schema {schema!r}"
                raise InvalidArgument(
                    f"fairqueue is installed {len(found)} times in {where}; migrate the database, or name the schema"
                )
            self._schema = quoted(found[0])
            offset = _OFFSET.format(schema=self._schema)
            connection.exec_driver_sql(offset, execution_options={"no_parameters": True})

    def now(self) -> datetime:
        """Return the present time by this clock, in UTC."""
        return instant(self._value("select {schema}.fq_now()"))

    def advance(self, by: timedelta) -> None:
        """Move the clock forward, at once for all connections. It continues to run."""
        ahead = microseconds(by)
        if ahead < 0:
            raise InvalidArgument(f"by is {by!r}; a clock goes forward: give a timedelta of zero or more")
        self._value("select setval('{schema}.test_clock', last_value + :us) from {schema}.test_clock", us=ahead)

    def move_to(self, instant: datetime) -> None:
        """Move the clock forward to an aware *instant*, which must not be past by this clock."""
        check_instant("instant", instant)
        self.advance(duration(instant_microseconds(instant) - instant_microseconds(self.now())))

    def reset(self) -> None:
        """Reset the clock to the true time. Earlier leases and schedules keep their times."""
        self._value("select setval('{schema}.test_clock', 0)")

    def _value(self, statement: str, **values: object) -> int:
        with self._engine.connect() as connection:
            return int(connection.scalar(text(statement.format(schema=self._schema)), values) or 0)
