"""Connections of a worker's own, each used by one thread.

A worker must not wait in the application's pool: the sessions of its own handlers could use it up, and a lease would
end because of it. So each part of a worker keeps a connection of its own, made as the application's engine makes them
(arguments, events, credentials). For an AsyncEngine that connection lives in an event loop of the thread's own, which
the application's loop cannot block.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from sqlalchemy import Engine, NullPool
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.asynchronous import AsyncConnection, AsyncEngine
from sqlalchemy_fairqueue.errors import IsolationError, LeaseLost
from sqlalchemy_fairqueue.worker.socket_watch import SocketWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

R = TypeVar("R")

# Somebody has a row locked; a character that the encoding has no bytes for.
_REFUSALS = {"55P03", "22P05"}
# Seconds after which a connection that is being made, and is not answered, is given up. The drivers' own are minutes.
_CONNECTING = 30.0


class DedicatedConnection(Protocol):
    """One connection, made when it is needed and again after it broke."""

    def run(self, work: Callable[[Connection], R], *, within: float | None = None) -> R:
        """Do *work* on the connection, where each statement is a READ COMMITTED transaction of its own.

        Args:
            work: What to do.
            within: Cut the connection if it takes longer than so many seconds.
        """
        ...

    def driver(self) -> Any:
        """The driver's connection, for what SQLAlchemy has no word for."""
        ...

    def close(self) -> None:
        """Let the connection go. The line can be used again."""
        ...

    def calling(self, within: float | None) -> contextlib.AbstractContextManager[None]:
        """A call by the driver's connection is under way; cut it after so many seconds."""
        ...

    def cut_if_stuck(self, seconds: float) -> None:
        """End a call that has had no answer for so long, with an error for its caller. Any thread may call it."""
        ...


def line(engine: Engine | AsyncEngine, lock_timeout: str | None = None) -> DedicatedConnection:
    """A line to the engine's database; only one thread may use it.

    Args:
        engine: How to connect.
        lock_timeout: Set for the connection, which must not be a transaction pooler's then.
    """
    set_up = None if lock_timeout is None else f"set lock_timeout = '{lock_timeout}'"
    return (
        AsyncDedicatedConnection(engine, set_up)
        if isinstance(engine, AsyncEngine)
        else SyncDedicatedConnection(engine, set_up)
    )


def _apart(engine: Engine) -> Engine:
    """An engine that connects in the same way, and keeps nothing: one that was given up must not take a place."""
    shared = engine.pool
    pool = NullPool(shared._creator, echo=shared.echo, dialect=engine.dialect, _dispatch=shared.dispatch)  # noqa: SLF001
    return Engine(pool, engine.dialect, engine.url, hide_parameters=engine.hide_parameters)


class SyncDedicatedConnection:
    """A line over a sync engine."""

    def __init__(self, engine: Engine, set_up: str | None) -> None:
        self._engine = _apart(engine)
        self._set_up = set_up
        self._peer = SocketWatch()
        self._isolation: Any = "AUTOCOMMIT"
        self._connection: Connection | None = None

    def run(self, work: Callable[[Connection], R], *, within: float | None = None) -> R:
        """As for DedicatedConnection."""
        try:
            connection = self._open()
            with self._peer.calling(within):
                return work(connection)
        except IsolationError:
            self.close()
            if self._isolation != "AUTOCOMMIT":
                raise
            # The server's default isolation is another one, so that it must be asked for.
            self._isolation = "READ COMMITTED"
            return self.run(work, within=within)
        except BaseException as error:
            if not _is_usable(error):
                self.close()
            raise

    def driver(self) -> Any:
        """As for DedicatedConnection."""
        try:
            return self._open().connection.driver_connection
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """As for DedicatedConnection."""
        self._peer.forget()
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.invalidate()
            with contextlib.suppress(Exception):
                connection.close()

    def calling(self, within: float | None) -> contextlib.AbstractContextManager[None]:
        """As for DedicatedConnection."""
        return self._peer.calling(within)

    def cut_if_stuck(self, seconds: float) -> None:
        """As for DedicatedConnection."""
        self._peer.cut_if_stuck(seconds)

    def _open(self) -> Connection:
        if self._connection is None:
            # Kept at once: whatever fails in it, close() lets it go.
            connection = self._connection = _connected(self._engine)
            self._peer.watch(connection.connection.driver_connection)
            with self._peer.calling(_CONNECTING):
                connection.execution_options(isolation_level=self._isolation)
                if self._set_up is not None:
                    connection.exec_driver_sql(self._set_up)
                    connection.commit()
        return self._connection


class AsyncDedicatedConnection:
    """A line over an async engine, in a loop of the thread's own."""

    def __init__(self, engine: AsyncEngine, set_up: str | None) -> None:
        self._engine = AsyncEngine(_apart(engine.sync_engine))
        self._set_up = set_up
        self._peer = SocketWatch()
        self._isolation: Any = "AUTOCOMMIT"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: AsyncConnection | None = None

    def run(self, work: Callable[[Connection], R], *, within: float | None = None) -> R:
        """As for DedicatedConnection."""
        try:
            return cast("R", self._in_loop(self._run(work, within)))
        except IsolationError:
            self.close()
            if self._isolation != "AUTOCOMMIT":
                raise
            self._isolation = "READ COMMITTED"
            return self.run(work, within=within)
        except BaseException as error:
            if not _is_usable(error):
                self.close()
            raise

    def driver(self) -> Any:
        """As for DedicatedConnection."""
        try:
            return self._in_loop(self._driver())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """As for DedicatedConnection."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        self._peer.forget()
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                loop.run_until_complete(connection.invalidate())
            with contextlib.suppress(Exception):
                loop.run_until_complete(connection.close())
        with contextlib.suppress(Exception):
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def calling(self, within: float | None) -> contextlib.AbstractContextManager[None]:
        """As for DedicatedConnection."""
        return self._peer.calling(within)

    def cut_if_stuck(self, seconds: float) -> None:
        """As for DedicatedConnection."""
        self._peer.cut_if_stuck(seconds)

    def _in_loop(self, coroutine: Any) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(coroutine)

    async def _run(self, work: Callable[[Connection], R], within: float | None) -> R:
        connection = await self._open()
        with self._peer.calling(within):
            return await connection.run_sync(work)

    async def _driver(self) -> Any:
        return (await (await self._open()).get_raw_connection()).driver_connection

    async def _open(self) -> AsyncConnection:
        if self._connection is None:
            scope = asyncio.timeout(_CONNECTING)
            try:
                async with scope:
                    self._connection = await self._engine.connect()
            except TimeoutError:
                if not scope.expired():
                    raise
                raise _unanswered() from None
            self._peer.watch(await self._driver())
            with self._peer.calling(_CONNECTING):
                self._connection = await self._connection.execution_options(isolation_level=self._isolation)
                if self._set_up is not None:
                    await self._connection.exec_driver_sql(self._set_up)
                    await self._connection.commit()
        return self._connection


def _connected(engine: Engine) -> Connection:
    """A new connection. It is made by a thread that is left behind if nobody answers: no socket is there to be shut."""
    made: Future[Connection] = Future()

    def connect() -> None:
        try:
            connection = engine.connect()
        except BaseException as error:  # noqa: BLE001 - raised where the connection was asked for
            if made.set_running_or_notify_cancel():
                made.set_exception(error)
        else:
            if made.set_running_or_notify_cancel():
                made.set_result(connection)
            else:
                connection.close()

    threading.Thread(target=connect, name="fairqueue-connecting", daemon=True).start()
    try:
        return made.result(_CONNECTING)
    except TimeoutError:
        if made.cancel():
            raise _unanswered() from None
        return made.result()


def _unanswered() -> TimeoutError:
    return TimeoutError(
        f"the database has not answered a new connection for {_CONNECTING:g} s; look whether it, its proxy and the "
        "network are up"
    )


def _is_usable(error: BaseException) -> bool:
    """Whether the connection can go on after an error: the database refused a statement, and said so."""
    if isinstance(error, DBAPIError):
        return not error.connection_invalidated and getattr(error.orig, "sqlstate", None) in _REFUSALS
    # The driver has no bytes for a character, and sent nothing.
    return isinstance(error, (LeaseLost, UnicodeError))
