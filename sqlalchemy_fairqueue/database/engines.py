"""Runs work on sync and async engines, and sets the isolation level and the timeouts of connections."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from weakref import WeakSet

from sqlalchemy import Connection, Engine, NullPool, Pool, PoolProxiedConnection, event, text
from sqlalchemy.engine.base import OptionEngine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import greenlet_spawn

from sqlalchemy_fairqueue.database.asynchronous import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy_fairqueue.database.calls import ALONE, AT_ONCE, is_in_autocommit
from sqlalchemy_fairqueue.database.drivers import driver_of, set_options
from sqlalchemy_fairqueue.errors import InvalidArgument, IsolationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping


R = TypeVar("R")

READ_COMMITTED = {"isolation_level": "READ COMMITTED"}
REPEATABLE_READ = {"isolation_level": "REPEATABLE READ"}

# The second setting exists since PostgreSQL 17.
_SET_TIME_LIMIT = text(
    "select pg_catalog.set_config('statement_timeout', cast(:limit as pg_catalog.text), false),"
    " case when pg_catalog.current_setting('transaction_timeout', true) is not null"
    " then pg_catalog.set_config('transaction_timeout', cast(:limit as pg_catalog.text), false) end"
)

_explicit: WeakSet[Engine] = WeakSet()


class _WithoutPool(OptionEngine):
    # An attribute in place of the property of OptionEngine, which returns the original engine's pool.
    pool: Pool = NullPool(lambda: None)  # type: ignore[arg-type]


def without_pool(engine: Engine, connect: Callable[[], Any] | None = None, **options: Any) -> Engine:
    """Return an engine with the events and options of *engine* that keeps no connection.

    By default the new engine connects as *engine* does. If *connect* is given, it makes the connections, and must
    itself call the listeners of *engine*'s pool. *options* are options of SQLAlchemy's Pool.
    """
    shared, own = engine.pool, _WithoutPool(engine, {})
    creator: Any = connect
    if creator is None:
        creator, options["_dispatch"] = shared._creator, shared.dispatch  # noqa: SLF001 - there is no public way
    own.pool = NullPool(creator, echo=shared.echo, dialect=engine.dialect, **options)
    return own


def blocking(engine: AsyncEngine) -> Engine:
    """Return a sync engine that connects as an AsyncEngine does, with its events and options.

    The engine keeps no connection. Do not use it in a thread whose event loop runs.
    """
    # This engine need not reset a connection: the engine that we return has done so before it closes the connection.
    connecting = without_pool(engine.sync_engine, reset_on_return=None)
    return without_pool(engine.sync_engine, lambda: _connected(connecting))


def _connected(engine: Engine) -> _Waiting:
    # psycopg needs a loop that can wait for a socket which others have made, here libpq. The default loop of Windows
    # cannot.
    loop = asyncio.SelectorEventLoop() if sys.platform == "win32" else asyncio.new_event_loop()
    try:
        return _WaitingConnection(_waited(loop, engine.raw_connection), loop)
    except BaseException:
        loop.close()
        raise


def _waited(loop: asyncio.AbstractEventLoop, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return loop.run_until_complete(greenlet_spawn(work, *arguments, **named))


class _Waiting:
    """A cursor of an asyncio driver for code outside of event loops. Each call runs *loop* until the call is done."""

    def __init__(self, adapted: Any, loop: asyncio.AbstractEventLoop) -> None:
        vars(self).update(_adapted=adapted, _loop=loop)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._adapted, name)
        return partial(_waited, self._loop, value) if callable(value) else value

    def __setattr__(self, name: str, value: Any) -> None:
        _waited(self._loop, setattr, self._adapted, name, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _WaitingConnection(_Waiting):
    """A connection of an asyncio driver for code outside of event loops. Its close also closes *loop*."""

    def __init__(self, pooled: PoolProxiedConnection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(pooled.dbapi_connection, loop)
        vars(self).update(_pooled=pooled)

    def cursor(self, *arguments: Any, **named: Any) -> _Waiting:
        return _Waiting(_waited(self._loop, self._adapted.cursor, *arguments, **named), self._loop)

    def run_in_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        self._end(self._pooled.close)

    def terminate(self) -> None:
        self._end(self._pooled.invalidate)

    def _end(self, work: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            try:
                _waited(self._loop, work)
            finally:
                self._loop.close()


def sets_up_transactions(connection: Connection) -> bool:
    """Return whether event listeners of SQLAlchemy set up a new connection's transactions, for example by SET LOCAL."""
    return connection.in_transaction() or bool(connection.engine.dispatch.begin)


def isolate(connection: Connection, options: Mapping[str, Any]) -> Connection:
    """Give a new connection isolation options, even if a listener of ``engine_connect`` has begun a transaction.

    The listener's transaction is committed, which ends settings that were made by ``SET LOCAL``. So the
    ``engine_connect`` listeners are called again at the begin of each later transaction.
    """
    if connection.in_transaction():
        dispatch: Any = connection.engine.dispatch
        connection.commit()
        # A lambda, since SQLAlchemy cannot keep weak references to the listeners themselves.
        event.listen(connection, "begin", lambda begun: dispatch.engine_connect(begun))  # noqa: PLW0108
    return set_options(connection, **options)


class _ReadCommitted(OptionEngine):
    def connect(self) -> Connection:
        return isolate(super().connect(), READ_COMMITTED)


def read_committed(engine: Engine) -> Engine:
    return _ReadCommitted(engine, {})


def run(engine: Engine, work: Callable[[Connection], R], *, calls_only: bool = False) -> R:
    """Call *work* on a connection where each statement is its own transaction, and return the result of *work*.

    There are two exceptions. If event listeners of SQLAlchemy set up the engine's transactions, for example by SET
    LOCAL, *work* runs in one READ COMMITTED transaction. If *work* fails with IsolationError, *work* is called once
    more, in a READ COMMITTED transaction. Later calls of this function on this engine use such a transaction at once.
    The transaction is committed after *work*, but *work* may also commit earlier.

    With *calls_only*, statements may bypass SQLAlchemy. Then *work* must execute only through the module ``calls``.
    """
    driver = driver_of(engine)
    try:
        with engine.connect() as connection:
            # AUTOCOMMIT takes one round trip for each statement. But it would end what listeners set up at once, and it
            # cannot set READ COMMITTED, which is needed if the server's default isolation is another one.
            if engine in _explicit or sets_up_transactions(connection):
                isolate(connection, READ_COMMITTED)
            elif calls_only and driver.passes_sqlalchemy:
                connection.execution_options(**ALONE)
            else:
                connection.execution_options(**AT_ONCE)
                if not is_in_autocommit(connection):
                    set_options(connection, isolation_level="AUTOCOMMIT")
            result = work(connection)
            connection.commit()
            return result
    except IsolationError:
        if engine in _explicit:
            raise
        _explicit.add(engine)
        return run(engine, work)


def on(where: Any, work: Callable[[Any], R]) -> R:
    """Return ``work(where)``. If *where* is async, return a coroutine that calls *work* on the sync form of *where*."""
    found = where() if isinstance(where, async_scoped_session) else where
    coroutine: Any
    if isinstance(found, AsyncEngine):
        # One greenlet for all work is cheaper: each async method of SQLAlchemy takes a greenlet, and a close takes a
        # task as well.
        coroutine = greenlet_spawn(work, found.sync_engine)
    elif isinstance(found, (AsyncSession, AsyncConnection)):
        coroutine = found.run_sync(work)
    else:
        return work(found)
    return cast("R", coroutine)


def read_again(read: Callable[[], R]) -> R:
    try:
        return read()
    except DBAPIError as error:
        # An idle connection of a pool may have been lost long ago.
        if not error.connection_invalidated:
            raise
    return read()


async def aread_again(read: Callable[[], Awaitable[R]]) -> R:
    try:
        return await read()
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
    return await read()


def run_transaction(engine: Engine, work: Callable[[Connection], R], *, isolates: bool = True) -> R:
    """Call *work* in a READ COMMITTED transaction, commit, and return the result of *work*.

    With ``isolates=False``, an engine in AUTOCOMMIT stays so, and each statement of *work* commits by itself.
    """
    driver_of(engine)
    with engine.connect() as connection:
        if isolates or not is_in_autocommit(connection):
            isolate(connection, READ_COMMITTED)
        result = work(connection)
        connection.commit()
        return result


def set_lock_timeout(connection: Connection, timeout: timedelta) -> None:
    """Limit lock waits of a session's statements. Behind a transaction pooler the setting would reach other clients."""
    connection.exec_driver_sql(f"set lock_timeout = {timeout // timedelta(milliseconds=1)}")


def set_time_limit(connection: Connection, limit: timedelta) -> None:
    """Limit how long statements and, if the server can, transactions of a session take, in place of the role's limit.

    Do not use this behind a transaction pooler, since the setting stays and would reach other clients.
    """
    connection.execute(_SET_TIME_LIMIT, {"limit": str(limit // timedelta(milliseconds=1))})


def refused(
    where: Any, wanted: str = "a session, a connection or an engine", otherwise: str | None = None
) -> InvalidArgument:
    """Return an error whose text says that *where* is not what *wanted* describes.

    If *where* is an engine, the text ends with the advice *otherwise*. None: there is no advice for engines.
    """
    kind = type(where).__name__
    article = "an" if kind[:1] in "AEIOUaeiou" else "a"
    advice = ""
    if isinstance(where, type):
        return InvalidArgument(f"got the class {where.__name__} where {wanted} is needed; give an object of it")
    if otherwise is not None and isinstance(where, (Engine, AsyncEngine)):
        advice = otherwise
    if hasattr(where, "class_") and hasattr(where, "kw"):
        block = "async with" if kind.startswith("async") else "with"
        advice = f"{article} {kind} makes sessions: give one, as in '{block} sessions.begin() as session'"
    elif isinstance(where, str):
        advice = "make an engine of a URL by create_engine(url), and give that"
    return InvalidArgument(f"got {article} {kind} where {wanted} is needed{advice and f'; {advice}'}")
