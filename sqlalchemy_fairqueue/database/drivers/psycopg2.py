"""The driver psycopg2, for sync engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg2 import BINARY, extensions

from sqlalchemy_fairqueue.database.drivers.base import LibpqDriver, RunInLoop, SocketListener

if TYPE_CHECKING:
    from collections.abc import Callable


_BYTEA = 17


def _read_bytes(value: Any, cursor: Any) -> bytes | None:
    return None if value is None else bytes(BINARY(value, cursor))


_BYTES = extensions.new_type((_BYTEA,), "FAIRQUEUE_BYTES", _read_bytes)


class Psycopg2(LibpqDriver):
    """The driver psycopg2. It inserts parameters into the text of a statement, and all results are text."""

    name = "psycopg2"

    def bytes_cursor(self, factory: Callable[..., Any] | None, *arguments: Any, **options: Any) -> Any:
        made = (factory or extensions.cursor)(*arguments, **options)
        extensions.register_type(_BYTES, made)
        return made

    def end(self, connection: Any, run: RunInLoop) -> None:  # noqa: ARG002 - it has no loop
        # Not the connection's own close(), which the application's class may replace.
        extensions.connection.close(connection)

    def listener(self, connection: Any, run: RunInLoop) -> SocketListener:  # noqa: ARG002 - it has no loop
        return _Psycopg2Listener(connection)


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
