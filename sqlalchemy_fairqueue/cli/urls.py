"""Database URLs: always with the psycopg driver, never shown with a password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from sqlalchemy_fairqueue.cli.errors import usage_error

if TYPE_CHECKING:
    from sqlalchemy import URL

CONNECT_SECONDS = 10
"""Time limit for connecting, unless the URL has ``?connect_timeout=``."""

_PORT = 5432
_DIALECTS = {"postgresql", "postgres"}
_OF_ASYNCPG = {
    "async_fallback", "command_timeout", "max_cacheable_statement_size", "max_cached_statement_lifetime",
    "prepared_statement_cache_size", "prepared_statement_name_func", "statement_cache_size", "timeout",
}  # fmt: skip


def psycopg_url(text: str, source: str) -> URL:
    """The URL, whichever driver it names, for psycopg.

    Args:
        text: As given.
        source: The option or variable that gave it, for the message.

    Raises:
        CommandError: It cannot be read, or names another database. The message quotes nothing of it, as it may be a
            secret.
    """
    try:
        url = make_url(text.strip())
    except (ArgumentError, ValueError):
        raise usage_error(f"{source} cannot be read; give postgresql://user@host/database") from None
    if url.drivername.partition("+")[0] not in _DIALECTS:
        raise usage_error(
            f"{source} names a {url.drivername} database; fairqueue lives in PostgreSQL: postgresql://..."
        )
    return of_libpq(url).set(drivername="postgresql+psycopg")


def of_libpq(url: URL) -> URL:
    """A URL as libpq reads it: parameters of asyncpg by their names in libpq, without those that libpq has not."""
    if not url.drivername.endswith("+asyncpg"):
        return url.set(drivername="postgresql")
    query = dict(url.query)
    if (ssl := query.pop("ssl", None)) is not None and "sslmode" not in query:
        query["sslmode"] = {"true": "require", "True": "require"}.get(str(ssl), ssl)
    return url.set(
        drivername="postgresql", query={name: value for name, value in query.items() if name not in _OF_ASYNCPG}
    )


def display_url(url: URL) -> str:
    """The URL without password and parameters, for messages."""
    host, port = _host_and_port(url)
    user = f"{url.username}@" if url.username else ""
    address = f"{host}:{port}" if port else host
    if host.startswith("/"):
        return f"postgresql://{user}/{url.database or ''}?host={host}{f'&port={port}' if port else ''}"
    return f"postgresql://{user}{address}/{url.database or ''}"


def same_database(one: URL, other: URL) -> bool:
    """Whether two URLs lead the same role to the same database, by whichever driver and with whichever parameters."""
    return _place(one) == _place(other)


def _place(url: URL) -> tuple[object, ...]:
    host, port = _host_and_port(url)
    return url.username, host, str(port or _PORT), url.database


def _host_and_port(url: URL) -> tuple[str, object]:
    host = url.host or str(url.query.get("host", "")) or "localhost"
    return host, url.port or url.query.get("port", "")


def connect_arguments(url: URL, name: str) -> dict[str, Any]:
    """Arguments of a connection besides the URL."""
    arguments: dict[str, Any] = {"fallback_application_name": name}
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = CONNECT_SECONDS
    return arguments
