"""psycopg2, for sync engines."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.drivers.base import LITERALS, Driver, SocketListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.drivers.base import RunInLoop

_BYTEA = 17


class Psycopg2(Driver):
    """psycopg2. It puts parameters into the text of a statement, and all results are text."""

    name = "psycopg2"
    example = "create_engine('postgresql+psycopg2://...')"
    encoders = LITERALS

    @contextmanager
    def bytes_results(self, connection: Connection) -> Iterator[None]:
        """Let the cursors of this statement return contents as bytes instead of memoryviews."""
        driver: Any = connection.connection.driver_connection
        factory = driver.cursor_factory
        driver.cursor_factory = partial(_cursor, factory)
        try:
            yield
        finally:
            driver.cursor_factory = factory

    def end(self, connection: Any, run: RunInLoop) -> None:  # noqa: ARG002 - it has no loop
        """As for Driver. The connection may be of a class of the application's, with a ``close()`` of its own."""
        from psycopg2.extensions import connection as plain

        plain.close(connection)

    def fileno(self, connection: Any) -> int:
        """As for Driver."""
        file: int = connection.fileno()
        return file

    def database_key(self, connection: Any) -> tuple[object, ...]:
        """As for Driver."""
        known = connection.info
        return known.host, known.port, known.dbname, known.user

    def listener(self, connection: Any, run: RunInLoop) -> SocketListener:  # noqa: ARG002 - it has no loop
        """As for Driver."""
        return _Psycopg2Listener(connection)


@cache
def _bytes_type() -> Any:
    # The application need not have this driver to have another.
    from psycopg2 import BINARY
    from psycopg2.extensions import new_type

    def read(value: Any, cursor: Any) -> bytes | None:
        return None if value is None else bytes(BINARY(value, cursor))

    return new_type((_BYTEA,), "FAIRQUEUE_BYTES", read)


def _cursor(factory: Callable[..., Any] | None, *arguments: Any, **options: Any) -> Any:
    from psycopg2.extensions import cursor, register_type

    made = (factory or cursor)(*arguments, **options)
    register_type(_bytes_type(), made)
    return made


class _Psycopg2Listener(SocketListener):
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket = connection.fileno()

    def received(self) -> list[str]:
        notifies = self._connection.notifies
        payloads = [notification.payload for notification in notifies]
        notifies.clear()
        return payloads

    def _execute(self, sql: str) -> list[str]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return [value for (value,) in cursor.fetchall()] if cursor.description else []

    def _consume(self) -> None:
        self._connection.poll()
