"""psycopg 3, for sync and async engines alike."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.database.drivers.base import Driver, SocketListener
from sqlalchemy_fairqueue.database.drivers.literals import LITERALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.drivers.base import RunInLoop


class Psycopg(Driver):
    """psycopg 3. It listens by libpq itself, whether the connection was made for threads or for asyncio."""

    name = "psycopg"
    example = "create_engine('postgresql+psycopg://...')"
    encoders = LITERALS

    @contextmanager
    def bytes_results(self, connection: Connection) -> Iterator[None]:
        """Values come as they are, where text would make a content twice as long.

        Its cursors are asked for them one by one, and SQLAlchemy makes the cursors: so the connection makes such
        cursors for as long as one statement takes. An application's own cursors stay what they are.
        """
        driver: Any = connection.connection.driver_connection
        factory = driver.cursor_factory
        driver.cursor_factory = partial(_binary_cursor, factory)
        try:
            yield
        finally:
            driver.cursor_factory = factory

    def fileno(self, connection: Any) -> int:
        """As for Driver."""
        file: int = connection.fileno()
        return file

    def database_key(self, connection: Any) -> tuple[object, ...]:
        """As for Driver."""
        known = connection.info
        return known.host, known.port, known.dbname, known.user

    def listener(self, connection: Any, run: RunInLoop) -> SocketListener:  # noqa: ARG002 - libpq needs no loop
        """As for Driver."""
        return _LibpqListener(connection.pgconn)


def _binary_cursor(factory: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    # The application need not have this driver to have another.
    from psycopg import AsyncClientCursor, ClientCursor  # noqa: PLC0415
    from psycopg.pq import Format  # noqa: PLC0415

    cursor = factory(*arguments, **options)
    # Those that put parameters into the text of a statement have text results only.
    if not isinstance(cursor, (ClientCursor, AsyncClientCursor)):
        cursor.format = Format.BINARY
    return cursor


class _LibpqListener(SocketListener):
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket = connection.socket

    def _execute(self, sql: str) -> list[str]:
        result = self._connection.exec_(sql.encode())
        # COMMAND_OK or TUPLES_OK
        if result.status not in {1, 2}:
            raise ConnectionError(f"cannot {sql}: {result.error_message.decode(errors='replace')}")
        return [result.get_value(row, 0).decode() for row in range(result.ntuples)]

    def received(self) -> list[str]:
        payloads = []
        while (notification := self._connection.notifies()) is not None:
            payloads.append(notification.extra.decode(errors="replace"))
        return payloads

    def _consume(self) -> None:
        self._connection.consume_input()
