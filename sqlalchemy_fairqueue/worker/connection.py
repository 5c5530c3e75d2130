"""Dedicated connections of a worker, each used by one thread.

A worker must not wait for the application's pool, since its own handlers' sessions could exhaust the pool, and leases
would end meanwhile. A dedicated connection is made as the application's engine makes connections: with its arguments,
events and credentials. For an AsyncEngine, a dedicated connection runs in an event loop of its own, which works on
while the application's loop is blocked.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import Future, wait
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database import engines
from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.calls import ALONE
from sqlalchemy_fairqueue.database.drivers import Listener, driver_of
from sqlalchemy_fairqueue.database.errors import sqlstate_of
from sqlalchemy_fairqueue.errors import LeaseLost
from sqlalchemy_fairqueue.worker.timings import Clock, Timings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine


R = TypeVar("R")

_AUTOCOMMIT = {"isolation_level": "AUTOCOMMIT"}

# 55P03 is the SQLSTATE of a lock_timeout. 57014 is that of an operator's cancel, and of a statement_timeout, which may
# be shorter than the lock_timeout.
LOCKED = {"55P03", "57014"}
# SQLSTATEs for a locked row, and for a character that the encoding cannot represent.
_REFUSALS = {"55P03", "22P05"}

# With these options the operating system notices within 20 seconds, even during a call, that the other side is gone.
# Here TCP_KEEPIDLE and TCP_KEEPINTVL are in seconds, TCP_USER_TIMEOUT is in milliseconds.
_OPTIONS = (
    ("SO_KEEPALIVE", socket.SOL_SOCKET, 1),
    ("TCP_KEEPIDLE", socket.IPPROTO_TCP, 5),
    ("TCP_KEEPINTVL", socket.IPPROTO_TCP, 5),
    ("TCP_KEEPCNT", socket.IPPROTO_TCP, 3),
    ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, 20_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """What a dedicated connection needs: the engine that it imitates, the limits of its calls, the clock.

    Attributes:
        listen: Whether the connection may LISTEN and keep settings. Behind a transaction pooler, both would be lost.
    """

    engine: Engine | AsyncEngine
    listen: bool = True
    timings: Timings = field(default_factory=Timings)
    clock: Clock = monotonic


@dataclass(eq=False, repr=False)
class DedicatedConnection:
    """A worker's connection to its database.

    The first use connects; after the connection broke, the next use connects anew. Only one thread uses it. Other
    threads may shut down its socket, which ends its call with an error. *made* counts the connections made so far.

    Args:
        lock_timeout: Most seconds that a statement waits for a lock. It is not set behind a transaction pooler.
        time_limit: Most seconds that a statement takes. It replaces the role's limit, except behind such a pooler.
        within: Seconds until a call is cut, unless :meth:`run` gets another limit. None if another thread cuts calls.
    """

    options: ConnectionOptions
    _: KW_ONLY
    lock_timeout: float | None = None
    time_limit: float | None = None
    within: float | None = None
    made: int = field(default=0, init=False)
    _listens: bool = field(default=False, init=False)
    _connection: Connection | None = field(default=None, init=False)
    # The driver's connection; SQLAlchemy no longer refers to a broken one.
    _opened: Any = field(default=None, init=False)
    # Runs a coroutine in the loop of the connection, if it has one.
    _in_loop: Any = field(default=None, init=False)
    _socket: socket.socket | None = field(default=None, init=False)
    _since: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        engine = self.options.engine
        self._engine = engines.blocking(engine) if isinstance(engine, AsyncEngine) else engines.without_pool(engine)
        self._driver = driver_of(self._engine)

    def run(self, work: Callable[[Connection], R], *, within: float | None = None) -> R:
        """Call *work* on the connection, where each statement is its own READ COMMITTED transaction.

        If PostgreSQL's default isolation is not READ COMMITTED, *work* is one READ COMMITTED transaction instead. The
        same holds if listeners of the engine (``begin``, ``engine_connect``) set up transactions. If *work* takes
        longer than *within* seconds (default: the connection's own limit), the connection is cut.
        """
        if self._has_ended():
            self.close()
        try:
            connection = self._open()
            with self.calling(self.within if within is None else within):
                try:
                    result = work(connection)
                except BaseException as error:
                    if _is_usable(error):
                        connection.rollback()
                    raise
                connection.commit()
                return result
        except BaseException as error:
            if not _is_usable(error):
                self.close()
            raise

    def database_key(self) -> tuple[object, ...]:
        """Return server, database and user; connections with equal keys receive the same notifications."""
        self._open()
        return self._driver.database_key(self._opened)

    def listener(self) -> Listener:
        """Return a listener on the connection. Until :meth:`close`, use the connection for nothing else."""
        self._listens = True
        self._open()
        return self._driver.listener(self._opened, self._in_loop)

    @contextlib.contextmanager
    def calling(self, within: float | None) -> Iterator[None]:
        timer = None if within is None else threading.Timer(within, self._cut)
        if timer is not None:
            timer.daemon = True
            timer.start()
        self._since = self.options.clock()
        try:
            yield
        finally:
            self._since = None
            if timer is not None:
                timer.cancel()
                timer.join()

    def cut_if_stuck(self, seconds: float) -> None:
        """Cut a call that has lasted longer than *seconds*; its caller gets an error. Any thread may call this."""
        since = self._since
        if since is not None and self.options.clock() - since > seconds:
            self._cut()

    def close(self) -> None:
        """End the connection, even if the engine's ``creator`` took it from a pool. The next use makes another."""
        own, self._socket = self._socket, None
        if own is not None:
            own.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            for end in partial(self._driver.end, self._opened, self._in_loop), connection.invalidate, connection.close:
                with contextlib.suppress(Exception):
                    end()

    def _open(self) -> Connection:
        if self._connection is not None:
            return self._connection
        within = self.options.timings.connect
        try:
            # Stored at once, so that close() ends the connection if anything below fails.
            connection = self._connection = _connected(self._engine, within)
            self._in_loop = getattr(connection.connection.dbapi_connection, "run_in_loop", None)
            self.made += 1
            self._opened = connection.connection.driver_connection
            self._watch_socket()
            with self.calling(within):
                self._prepare(connection)
        except BaseException:
            self.close()
            raise
        return connection

    def _prepare(self, connection: Connection) -> None:
        alone = not engines.sets_up_transactions(connection)
        engines.isolate(connection, _AUTOCOMMIT if alone or self._listens else engines.READ_COMMITTED)
        if alone:
            # The server, the database, the role or the session may set another default isolation.
            alone = connection.get_isolation_level() == "READ COMMITTED"
        connection.execution_options(**(ALONE if alone or self._listens else engines.READ_COMMITTED))
        if self.lock_timeout is not None and self.options.listen:
            engines.set_lock_timeout(connection, timedelta(seconds=self.lock_timeout))
        if self.time_limit is not None and self.options.listen:
            engines.set_time_limit(connection, timedelta(seconds=self.time_limit))
        connection.commit()

    def _watch_socket(self) -> None:
        with contextlib.suppress(OSError):
            own = self._socket = socket.socket(fileno=socket.dup(self._driver.fileno(self._opened)))
            if own.family in {socket.AF_INET, socket.AF_INET6}:
                for name, level, value in _OPTIONS:
                    option = getattr(socket, name, None)  # not every system has all
                    if option is not None:
                        own.setsockopt(level, option, value)

    def _has_ended(self) -> bool:
        """Return whether the connection has ended, or has unread data, as when the server is about to end it."""
        if self._socket is None:
            return False
        try:
            # This never waits: the driver has made the socket non-blocking, or else the flag has the same effect.
            self._socket.recv(1, socket.MSG_PEEK | getattr(socket, "MSG_DONTWAIT", 0))
        except OSError as error:
            return not isinstance(error, BlockingIOError)
        return True

    def _cut(self) -> None:
        own = self._socket
        if own is not None:
            with contextlib.suppress(OSError):
                own.shutdown(socket.SHUT_RDWR)


def begun_in_thread(work: Callable[[], R], name: str) -> Future[R]:
    future: Future[R] = Future()
    # Nobody can cancel it from now on.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _connected(engine: Engine, within: float) -> Connection:
    """Connect in a thread. After *within* seconds, raise TimeoutError; the thread goes on, since nothing can end it."""
    connecting = begun_in_thread(engine.connect, "fairqueue-connecting")
    if wait([connecting], within).done:
        return connecting.result()
    connecting.add_done_callback(_close_late)
    raise TimeoutError(
        f"the database has not answered a new connection for {within:g} s; look whether it, its proxy and the network "
        "are up"
    )


def _close_late(connecting: Future[Connection]) -> None:
    if connecting.exception() is None:
        connecting.result().close()


def _is_usable(error: BaseException) -> bool:
    """Return whether the connection can be used again after *error*."""
    if isinstance(error, DBAPIError):
        return not error.connection_invalidated and sqlstate_of(error) in _REFUSALS
    # The driver has no bytes for a character, and sent nothing.
    return isinstance(error, (LeaseLost, UnicodeError))
