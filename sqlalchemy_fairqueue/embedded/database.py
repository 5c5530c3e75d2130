"""Choice of a server, and a temporary database on it."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from typing import TYPE_CHECKING

from sqlalchemy import URL, create_engine, make_url, text

from sqlalchemy_fairqueue.embedded.programs import DATABASE_URL_VARIABLE
from sqlalchemy_fairqueue.embedded.server import embedded_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection, Engine

# Those that DROP DATABASE ... WITH (FORCE) may end, too. No row: none is left.
_END_CONNECTIONS = text(
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = :name and backend_type = 'client backend' and pg_has_role(usesysid, 'usage')"
)
_END_POLLS = 50
_END_POLL_SECONDS = 0.002


def named_server(variable: str = DATABASE_URL_VARIABLE) -> URL | None:
    """The server that the environment names in a variable, or None; always with the psycopg driver.

    Example:
        >>> named_server("A_VARIABLE_THAT_IS_NOT_SET") is None
        True
    """
    named = os.environ.get(variable, "").strip()
    return make_url(named).set(drivername="postgresql+psycopg") if named else None


@contextlib.contextmanager
def any_server(*, durable: bool = True, settings: Mapping[str, str] | None = None) -> Iterator[URL]:
    """Yield the URL of the server that the environment names, or else of a private one for the time of the block.

    Args:
        durable: see `embedded_server`; a named server keeps its own settings.
        settings: see `embedded_server`; a named server keeps its own.

    Example:
        >>> with any_server(durable=False) as url:
        ...     url.drivername
        'postgresql+psycopg'
    """
    if named := named_server():
        yield named
        return
    with embedded_server(durable=durable, settings=settings) as server:
        yield server.url()


@contextlib.contextmanager
def scratch_database(server: URL, name: str | None = None) -> Iterator[URL]:
    """Create an empty database on *server* and drop it at the end of the block, with all connections to it.

    Args:
        server: a URL with the right to create databases.
        name: default: a random one.

    Example:
        >>> with scratch_database(engine.url) as url:
        ...     own = create_engine(url)
        ...     print("installed" if install_fairqueue(own) else "there already")
        ...     own.dispose()
        installed
    """
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with temporary_database(engine, name or f"fairqueue_{uuid.uuid4().hex[:12]}") as url:
            yield url
    finally:
        engine.dispose()


@contextlib.contextmanager
def temporary_database(server: Engine, name: str, options: str = "") -> Iterator[URL]:
    """As `scratch_database`, by an AUTOCOMMIT engine and with options of CREATE DATABASE."""
    quoted = server.dialect.identifier_preparer.quote(name)
    with server.connect() as connection:
        connection.exec_driver_sql(f"create database {quoted} {options}")
    try:
        yield server.url.set(database=name)
    finally:
        with server.connect() as connection:
            drop_database(connection, name)


def drop_database(connection: Connection, name: str) -> None:
    """Drop a database, if it exists, with all connections to it.

    PostgreSQL takes some milliseconds to end a connection that the client has closed. A DROP DATABASE that finds one
    looks again after 100 ms, so this waits for their end first, for the same time at most.

    Args:
        connection: An AUTOCOMMIT connection to another database of the server.
        name: The database.
    """
    for _ in range(_END_POLLS):
        if connection.execute(_END_CONNECTIONS, {"name": name}).first() is None:
            break
        time.sleep(_END_POLL_SECONDS)
    quoted = connection.dialect.identifier_preparer.quote(name)
    connection.exec_driver_sql(f"drop database if exists {quoted} with (force)")
