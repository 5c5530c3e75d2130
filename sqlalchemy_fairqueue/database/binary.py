"""Binary results: values come from the server as they are, where text would make a content twice as long.

Most drivers' cursors are asked for them one by one, and SQLAlchemy makes the cursors: so the connection makes such
cursors for as long as one statement takes.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from psycopg import AsyncClientCursor, ClientCursor
from psycopg.pq import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection


@contextmanager
def binary_results(connection: Connection) -> Iterator[None]:
    """Let a connection's statements return binary values. An application's own cursors stay what they are."""
    driver: Any = connection.connection.driver_connection
    factory = driver.cursor_factory
    driver.cursor_factory = partial(_cursor, factory)
    try:
        yield
    finally:
        driver.cursor_factory = factory


def _cursor(factory: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    cursor = factory(*arguments, **options)
    # Those that put parameters into the text of a statement have text results only.
    if not isinstance(cursor, (ClientCursor, AsyncClientCursor)):
        cursor.format = Format.BINARY
    return cursor
