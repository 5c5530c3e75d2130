"""Contract of a driver, and what several drivers share: listeners over a socket, array literals."""

from __future__ import annotations

import re
import selectors
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    RunInLoop = Callable[[Coroutine[Any, Any, Any]], Any]


CHANNEL = "fairqueue"
"""The channel of NOTIFY."""
# One row while the connection listens.
_COMMITS_NOTIFY = (
    "select case when pg_catalog.current_setting('transaction_read_only') operator(pg_catalog.=) 'on' then 'read only'"
    " else cast(pg_catalog.pg_notification_queue_usage() operator(pg_catalog.<=) 0.5 as pg_catalog.text) end"
    " from pg_catalog.pg_listening_channels() c where c operator(pg_catalog.=) 'fairqueue'"
)


class NumberedStatement(NamedTuple):
    """A statement with its parameters by number, ``$1``.

    Attributes:
        sql: Its text.
        encoded: The same in UTF-8.
    """

    sql: str
    encoded: bytes


class Driver(ABC):
    """A driver, as the queue needs it. It has no state.

    "Driver's connection" is the one that the driver's own package makes, which SQLAlchemy wraps.

    Attributes:
        name: As in ``postgresql+name``.
        example: How to create an engine on it, for messages.
        encoders: For each SQL type whose values need it, what makes of a value the parameter that the driver sends. It
            is not called for None.
        passes_sqlalchemy: Whether :meth:`send_past` ever sends anything.
    """

    name: ClassVar[str]
    example: ClassVar[str]
    encoders: ClassVar[Mapping[str, Callable[[Any], Any]]]
    passes_sqlalchemy: ClassVar[bool] = False

    def bytes_results(self, connection: Connection) -> AbstractContextManager[None]:  # noqa: ARG002 - for others
        """While it is entered, a statement's bytea columns come as bytes, in the binary format where there is one."""
        return nullcontext()

    def give_up(self, connection: Connection) -> bool:  # noqa: ARG002 - for others
        """Cancel what was sent past SQLAlchemy and is not answered. Return whether the connection is of no use now."""
        return False

    def can_commit_with(self, connection: Connection) -> bool:  # noqa: ARG002 - for others
        """Return whether the connection can send statements and COMMIT in one round trip now."""
        return False

    def commit_with(
        self, connection: Connection, statements: Sequence[tuple[str, Any]], rows: list[Sequence[Any]]
    ) -> None:
        """Send statements, each with its parameters, and COMMIT in one round trip, where it can.

        After an error of the server the connection is as after a statement that failed, or as after a COMMIT that did.
        Anything else that interrupts it is raised as it is; :meth:`give_up` comes next.

        Args:
            connection: In a transaction, or about to begin one.
            statements: At least one.
            rows: Gets the rows of each statement that the server executed, also when a later one or the COMMIT fails.
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
        """Send statements that return rows on the driver's connection itself, as the cursors of SQLAlchemy would.

        Args:
            connection: Without *commit* in no transaction.
            statements: Each with its parameters in their order, as :attr:`encoders` make them.
            rows: As for :meth:`commit_with`.
            commit: Send COMMIT with them, as :meth:`commit_with` does; :meth:`can_commit_with` has said that it can.
                Else there is one statement, a transaction of its own.
            as_bytes: As for :meth:`bytes_results`, if it is one.

        Returns:
            False: nothing was sent, for SQLAlchemy has to send it.
        """
        return False

    def end(self, connection: Any, run: RunInLoop) -> None:  # noqa: B027 - for others
        """End a driver's connection, where its own ``close()`` may give it back to a pool of the application's.

        SQLAlchemy closes it afterwards. This does nothing if that is enough.

        Args:
            connection: In any state; also one that has ended.
            run: Runs a coroutine in the connection's event loop; where there is one.
        """

    @abstractmethod
    def fileno(self, connection: Any) -> int:
        """Return the file descriptor of the socket under a driver's connection."""

    @abstractmethod
    def database_key(self, connection: Any) -> tuple[object, ...]:
        """Return server, database and user of a driver's connection; equal keys get the same notifications."""

    @abstractmethod
    def listener(self, connection: Any, run: RunInLoop) -> Listener:
        """Make a listener of a driver's connection, which nobody uses for anything else afterwards.

        Args:
            connection: In AUTOCOMMIT.
            run: Runs a coroutine in the connection's event loop, which nobody else runs; where there is one.
        """


class Listener(ABC):
    """A connection that listens for notifications, used by one thread."""

    def listen(self, application_name: str) -> None:
        """Begin to listen for what commits send to waiting consumers.

        Args:
            application_name: The name by which pg_stat_activity shows the connection; without quotes.

        Raises:
            Exception: Any: the connection is broken, or the server refused it.
        """
        # The engine may have another encoding, and topics are compared by their characters.
        self._execute("set client_encoding to 'UTF8'")
        self._execute(f"set application_name to '{application_name}'")
        # It is idle most of the time, and asked every few seconds whether it is alive.
        self._execute("set idle_session_timeout to 0")
        self._listen()

    def commits_notify(self) -> bool | None:
        """Return whether the server's notification queue has room; None if the connection does not listen.

        Raises:
            ConnectionError: The server takes no writes: it was the primary until a failover.
            Exception: Any: the connection is broken.
        """
        answer = self._execute(_COMMITS_NOTIFY)
        if answer == ["read only"]:
            raise ConnectionError("the server takes no writes, so that no commit there notifies anybody")
        return answer == ["true"] if answer else None

    @abstractmethod
    def wait(self, stop: int, seconds: float) -> None:
        """Wait until something came, the file *stop* can be read, or so many seconds are over.

        Raises:
            Exception: Any: the connection is broken.
        """

    @abstractmethod
    def received(self) -> list[str]:
        """Return the payloads of the notifications since the last call, without waiting."""

    @abstractmethod
    def _execute(self, sql: str) -> list[str]:
        """Execute a statement in a transaction of its own; the first column of its rows, which must be text."""

    def _listen(self) -> None:
        self._execute(f"listen {CHANNEL}")


class SocketListener(Listener):
    """A listener over a blocking connection: it waits for the socket itself."""

    _socket: int

    def wait(self, stop: int, seconds: float) -> None:
        # Not select(), which knows no file above 1023.
        with selectors.DefaultSelector() as selector:
            for file in self._socket, stop:
                selector.register(file, selectors.EVENT_READ)
            if self._socket in {key.fd for key, _ in selector.select(seconds)}:
                self._consume()

    @abstractmethod
    def _consume(self) -> None:
        """Read what the socket has."""


# Array literals: psycopg takes ten times as long for a list as for the text that PostgreSQL itself writes for an array.
_needs_no_quotes = re.compile(r"(?!null\Z)[\w.:@/-]+", re.ASCII | re.IGNORECASE).fullmatch


class _Contents(str):
    """Contents as a parameter, which the logs of an engine with ``echo`` do not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        sizes = [max(len(one) - len('"\\\\x"'), 0) // 2 for one in self[1:-1].split(",")]
        return f"[{', '.join(f'<{size:,} bytes>' for size in sizes)}]"


def texts(values: Iterable[str | None]) -> str:
    """Write texts as the literal of an array."""
    values = list(values)
    words = {value: _word(value) for value in set(values)}
    return f"{{{','.join(map(words.__getitem__, values))}}}"


def _word(value: str | None) -> str:
    if value is None:
        return "null"
    if _needs_no_quotes(value):
        return value
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def contents(values: Sequence[bytes | None]) -> str:
    """Write contents as the literal of an array, in hexadecimal."""
    try:
        return _Contents('{"\\\\x' + '","\\\\x'.join(map(bytes.hex, cast("Sequence[bytes]", values))) + '"}')
    except TypeError:
        # Some are None, as few contents are.
        words = ("null" if value is None else f'"\\\\x{value.hex()}"' for value in values)
        return _Contents(f"{{{','.join(words)}}}")


def integers(numbers: Iterable[int | None]) -> str:
    """Write integers as the literal of an array."""
    return f"{{{','.join(map(str, numbers))}}}".replace("None", "null")


def booleans(values: Iterable[bool | None]) -> str:
    """Write booleans as the literal of an array."""
    return f"{{{','.join('null' if value is None else str(value).lower() for value in values)}}}"


def row_ids(ctids: Iterable[str]) -> str:
    """Row ids, like ``(0,1)``, as a literal."""
    return '{"' + '","'.join(ctids) + '"}'


LITERALS: dict[str, Any] = {
    "bytea[]": contents,
    "text[]": texts,
    "jsonb[]": texts,
    "integer[]": integers,
    "bigint[]": integers,
    "tid[]": row_ids,
    "uuid[]": texts,
    "boolean[]": booleans,
}
"""The encoders of a driver that sends such texts as they are."""


class LibpqDriver(Driver):
    """A driver over libpq, which takes arrays as literals."""

    encoders = LITERALS

    @contextmanager
    def bytes_results(self, connection: Connection) -> Iterator[None]:
        """As for Driver, by cursors that the connection makes for as long as one statement takes.

        SQLAlchemy makes the cursors, and each is asked for its format. An application's own cursors stay what they are.
        """
        driver: Any = connection.connection.driver_connection
        factory = driver.cursor_factory
        driver.cursor_factory = partial(self.bytes_cursor, factory)
        try:
            yield
        finally:
            driver.cursor_factory = factory

    @abstractmethod
    def bytes_cursor(self, factory: Any, *arguments: Any, **options: Any) -> Any:
        """Make a cursor of the connection's own factory whose bytea columns come as bytes."""

    def fileno(self, connection: Any) -> int:
        file: int = connection.fileno()
        return file

    def database_key(self, connection: Any) -> tuple[object, ...]:
        known = connection.info
        return known.host, known.port, known.dbname, known.user
