"""Defines what a driver must offer, and what several drivers share: listeners over a socket, array literals."""

from __future__ import annotations

import re
import selectors
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

RunInLoop: TypeAlias = "Callable[[Coroutine[Any, Any, Any]], Any]"
CHANNEL = "fairqueue"
# Returns one row if the connection listens, otherwise none.
_COMMITS_NOTIFY = (
    "select case when pg_catalog.current_setting('transaction_read_only') operator(pg_catalog.=) 'on' then 'read only'"
    " else cast(pg_catalog.pg_notification_queue_usage() operator(pg_catalog.<=) 0.5 as pg_catalog.text) end"
    " from pg_catalog.pg_listening_channels() c where c operator(pg_catalog.=) 'fairqueue'"
)


def set_options(connection: Connection, **options: Any) -> Connection:
    """Set options of a connection, or end the connection if that fails or is interrupted.

    A failed call may leave an isolation level that SQLAlchemy does not know of, and so would not reset for the pool.
    """
    try:
        return connection.execution_options(**options)
    except BaseException:
        connection.invalidate()
        raise


class NumberedStatement(NamedTuple):
    """A statement with numbered parameters (``$1``), as text and in UTF-8."""

    sql: str
    encoded: bytes


class Driver(ABC):
    """What the queue needs of a driver. Objects have no state.

    "Driver's connection" means the object of the driver's own package, which SQLAlchemy wraps. If such a connection
    has an event loop, a method's argument *run* runs a coroutine in that event loop. Nothing else may run the loop.

    Attributes:
        name: As in ``postgresql+name``.
        encoders: For some SQL types, a function that converts a value, but not None, to the driver's parameter.
        passes_sqlalchemy: Whether :meth:`send_past` ever sends anything.
    """

    name: ClassVar[str]
    encoders: ClassVar[Mapping[str, Callable[[Any], Any]]]
    passes_sqlalchemy: ClassVar[bool] = False

    def bytes_results(self, connection: Connection) -> AbstractContextManager[None]:  # noqa: ARG002 - for others
        """Return a context manager that lets bytea columns come as bytes, in binary format if the driver has one."""
        return nullcontext()

    def give_up(self, connection: Connection) -> bool:  # noqa: ARG002 - for others
        """Cancel unanswered statements that were sent past SQLAlchemy. Return whether the connection is useless now."""
        return False

    def can_commit_with(self, connection: Connection) -> bool:  # noqa: ARG002 - for others
        return False

    def commit_with(
        self, connection: Connection, statements: Sequence[tuple[str, Any]], rows: list[Sequence[Any]]
    ) -> None:
        """Send statements, each with its parameters, and COMMIT in one round trip. Ask :meth:`can_commit_with` first.

        *rows* receives the rows of each executed statement, even if a later statement or the COMMIT fails. An error of
        the driver's package leaves the connection as any failed statement or COMMIT does. After an exception of any
        other class, the caller must call :meth:`give_up`.
        """
        raise NotImplementedError

    def send_past(
        self,
        connection: Connection,  # noqa: ARG002 - for others
        statements: Sequence[tuple[NumberedStatement, Sequence[Any]]],  # noqa: ARG002
        rows: list[Sequence[Any]],  # noqa: ARG002
        *,
        commit: bool,  # noqa: ARG002
        as_bytes: bool,  # noqa: ARG002
    ) -> bool:
        """Send statements by the driver's connection, without SQLAlchemy's cursors but with the same effects.

        With *commit*, a COMMIT travels with the statements; ask :meth:`can_commit_with` before. Without *commit*, give
        one statement, which the server commits by itself. Each statement has its parameters in order, encoded by
        :attr:`encoders`. *rows* receives rows as in :meth:`commit_with`. With *as_bytes*, bytea columns come as bytes.
        Return False if nothing was sent, so that SQLAlchemy has to send the statements.
        """
        return False

    def end(self, connection: Any, run: RunInLoop) -> None:  # noqa: B027 - for others
        """Do what a driver needs to end a connection in any state; SQLAlchemy closes it next. By default do nothing."""

    @abstractmethod
    def fileno(self, connection: Any) -> int: ...

    @abstractmethod
    def database_key(self, connection: Any) -> tuple[object, ...]:
        """Return server, database and user; connections with equal keys receive the same notifications."""

    @abstractmethod
    def listener(self, connection: Any, run: RunInLoop) -> Listener:
        """Return a listener on a driver's connection in AUTOCOMMIT. Use the connection for nothing else from now on."""


class Listener(ABC):
    """A connection on which one thread listens. If the connection is broken, methods raise exceptions of any class."""

    def listen(self, application_name: str) -> None:
        """Begin to listen. pg_stat_activity shows *application_name*, which must not contain a quote."""
        # In UTF-8, since payloads of notifications are compared as texts, and the engine may have another encoding.
        self._execute("set client_encoding to 'UTF8'")
        self._execute(f"set application_name to '{application_name}'")
        # No timeout, since the connection is mostly idle; every few seconds it is asked whether it is alive.
        self._execute("set idle_session_timeout to 0")
        self._listen()

    def commits_notify(self) -> bool | None:
        """Return whether the server's notification queue has room; None if the connection does not listen.

        Raise ConnectionError if the server takes no writes, like a former primary after a failover.
        """
        answer = self._execute(_COMMITS_NOTIFY)
        if answer == ["read only"]:
            raise ConnectionError("the server takes no writes, so that no commit there notifies anybody")
        return answer == ["true"] if answer else None

    @abstractmethod
    def wait(self, stop: int, seconds: float) -> None:
        """Wait until something arrives, the file descriptor *stop* is readable, or this many seconds are over."""

    @abstractmethod
    def received(self) -> list[str]:
        """Return the payloads of the notifications since the last call, without waiting."""

    @abstractmethod
    def _execute(self, sql: str) -> list[str]:
        """Execute a statement in its own transaction, and return the first column, which must be text."""

    def _listen(self) -> None:
        self._execute(f"listen {CHANNEL}")


class SocketListener(Listener):
    """A listener on a blocking connection. The listener itself waits for the connection's socket."""

    _socket: int

    def wait(self, stop: int, seconds: float) -> None:
        # Not select(), which refuses file descriptors above 1023.
        with selectors.DefaultSelector() as selector:
            for file in self._socket, stop:
                selector.register(file, selectors.EVENT_READ)
            if self._socket in {key.fd for key, _ in selector.select(seconds)}:
                self._consume()

    @abstractmethod
    def _consume(self) -> None:
        """Let the driver read what has arrived at the socket."""


# Array literals are strings, since psycopg takes ten times as long for a list.
_needs_no_quotes = re.compile(r"(?!null\Z)[\w.:@/-]+", re.ASCII | re.IGNORECASE).fullmatch


class Content(bytes):
    """The content of a message as a parameter. An engine with ``echo`` logs only its length."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self):,} bytes>"


class _Contents(str):
    """The contents of several messages as one array literal. An engine with ``echo`` logs only their lengths."""

    __slots__ = ()

    def __repr__(self) -> str:
        sizes = [max(len(one) - len('"\\\\x"'), 0) // 2 for one in self[1:-1].split(",")]
        return f"[{', '.join(f'<{size:,} bytes>' for size in sizes)}]"


def _literal(values: Sequence[Any], word: Callable[[Any], str]) -> str:
    # Most arrays about many messages have one value many times.
    is_one = bool(values) and values.count(values[0]) == len(values)
    return f"{{{','.join([word(values[0])] * len(values) if is_one else map(word, values))}}}"


def texts(values: Sequence[str | None]) -> str:
    return _literal(values, {value: _word(value) for value in set(values)}.__getitem__)


def _word(value: str | None) -> str:
    if value is None:
        return "null"
    if _needs_no_quotes(value):
        return value
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def contents(values: Sequence[bytes | None]) -> str:
    try:
        return _Contents('{"\\\\x' + '","\\\\x'.join(map(bytes.hex, cast("Sequence[bytes]", values))) + '"}')
    except TypeError:
        # Some values are None, which is rare.
        words = ("null" if value is None else f'"\\\\x{value.hex()}"' for value in values)
        return _Contents(f"{{{','.join(words)}}}")


def integers(numbers: Sequence[int | None]) -> str:
    return _literal(numbers, str).replace("None", "null")


def booleans(values: Sequence[bool | None]) -> str:
    return _literal(values, str).lower().replace("none", "null")


def row_ids(ctids: Iterable[str]) -> str:
    return '{"' + '","'.join(ctids) + '"}'


LITERALS: dict[str, Any] = {
    "bytea": Content,
    "bytea[]": contents,
    "text[]": texts,
    "jsonb[]": texts,
    "integer[]": integers,
    "bigint[]": integers,
    "tid[]": row_ids,
    "uuid[]": texts,
    "boolean[]": booleans,
}


class LibpqDriver(Driver):
    """A driver over libpq, which takes arrays as literals."""

    encoders = LITERALS

    @contextmanager
    def bytes_results(self, connection: Connection) -> Iterator[None]:
        driver: Any = connection.connection.driver_connection
        factory = driver.cursor_factory
        driver.cursor_factory = partial(self.bytes_cursor, factory)
        try:
            yield
        finally:
            driver.cursor_factory = factory

    @abstractmethod
    def bytes_cursor(self, factory: Any, *arguments: Any, **options: Any) -> Any:
        """Make a cursor, by the connection's own factory, that returns bytea columns as bytes."""

    def fileno(self, connection: Any) -> int:
        file: int = connection.fileno()
        return file

    def database_key(self, connection: Any) -> tuple[object, ...]:
        known = connection.info
        return known.host, known.port, known.dbname, known.user
