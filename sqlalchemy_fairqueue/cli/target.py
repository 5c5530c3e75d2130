"""The target of a command: the database, the schema and the queue, from options, environment and application."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.application import engine_of_module, load_object
from sqlalchemy_fairqueue.cli.errors import CommandError, usage_error
from sqlalchemy_fairqueue.cli.failures import DRIVER_ERRORS, command_error
from sqlalchemy_fairqueue.cli.options import APP_VARIABLE, DATABASE_URL_VARIABLE
from sqlalchemy_fairqueue.cli.output import print_message
from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.drivers import driver_of
from sqlalchemy_fairqueue.database.engines import blocking
from sqlalchemy_fairqueue.values.checks import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy_fairqueue.cli.application import AnyEngine
    from sqlalchemy_fairqueue.cli.options import Options


@dataclass(frozen=True, slots=True)
class Target:
    """The database, schema and queue that a command is for.

    Attributes:
        schema: The schema of the installation; None: found through the search_path.
        queue: The queue that the options or the application name; None if they name none.
        application: The Queue object that --app names; None if it names none, or if --queue names another queue.
    """

    engine: Engine
    schema: str | None
    queue: str | None
    application: Queue | None

    @property
    def database(self) -> str:
        """The URL of the database without the password."""
        return display_url(self.engine.url)


@contextlib.contextmanager
def open_target(options: Options) -> Iterator[Target]:
    """Find the target of a command.

    Raises:
        CommandError: The options name no usable target, or the ``with`` block raises an error of the database.
        InvalidArgument: The name of the schema is not valid, or the library does not support the engine's driver.
    """
    if options.schema:
        check_name("schema", options.schema)
    reference = application_reference(options)
    application = load_object(reference, options.app_dir) if reference else None
    if reference and not isinstance(application, (Queue, Engine, AsyncEngine)):
        raise usage_error(f"{reference!r} is a {type(application).__name__}, not a Queue or an Engine")
    queue = application if isinstance(application, Queue) else None
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(_engine(options, application, reference))
        target = Target(
            engine,
            options.schema or (queue.schema if queue else None),
            options.queue or (queue.name if queue else None),
            queue if queue and options.queue in {None, queue.name} else None,
        )
        try:
            yield target
        except BrokenPipeError:
            raise
        except DRIVER_ERRORS as error:
            raise command_error(error, target.database) from error


def application_reference(options: Options) -> str | None:
    return options.app or os.environ.get(APP_VARIABLE, "").strip() or None


def names_database(options: Options) -> bool:
    return bool(options.database_url or os.environ.get(DATABASE_URL_VARIABLE) or application_reference(options))


@contextlib.contextmanager
def _engine(options: Options, application: object, reference: str | None) -> Iterator[Engine]:
    def warn(chosen: str, other: str) -> None:
        print_message(
            f"works on {chosen}, which {DATABASE_URL_VARIABLE} names, and not on {other}, that of the engine in the "
            f"module of {reference}; unset the variable, or give --app module:engine, to work there"
        )

    given = choose_database(options, application, reference, warn)
    if isinstance(given, Engine):
        driver_of(given)
        yield given
        return
    if isinstance(given, AsyncEngine):
        driver_of(given.sync_engine)
        yield blocking(given)
        return
    # psycopg would prepare a statement that is repeated on one connection, which not every pooler supports.
    arguments = {**connect_arguments(given, "fairqueue"), "prepare_threshold": None}
    engine = create_engine(given, poolclass=NullPool, connect_args=arguments)
    try:
        yield engine
    finally:
        engine.dispose()


def choose_database(
    options: Options, application: object, reference: str | None, warn: Callable[[str, str], object]
) -> URL | AnyEngine:
    """Choose the database by the options, the application and the environment.

    The first of these decides: --database-url, *application* if it is an engine, the environment variable, the engine
    in the module of *reference*. Raise CommandError if there is none. If the environment variable decides, and that
    module has an engine for the same database, return the engine, since it has settings that a URL lacks. If the engine
    is for another database, call *warn* and return the URL of the variable.

    Args:
        application: The object that *reference* names.
        reference: The value of --app, or for a worker without --app its first queue: ``module:name``.
        warn: Called with two URLs without passwords: the variable's, then the engine's.
    """
    given = _first_named(options, application, reference)
    if not isinstance(given, URL) or options.database_url or not reference:
        return given
    engine = None
    # The module may have several engines, which is no error here.
    with contextlib.suppress(CommandError):
        engine = engine_of_module(reference)
    if engine is None:
        return given
    if same_database(engine.url, given):
        return engine
    warn(display_url(given), display_url(engine.url))
    return given


def _first_named(options: Options, application: object, reference: str | None) -> URL | AnyEngine:
    if options.database_url:
        return psycopg_url(options.database_url, "--database-url")
    if isinstance(application, (Engine, AsyncEngine)):
        return application
    if url := os.environ.get(DATABASE_URL_VARIABLE, "").strip():
        return psycopg_url(url, DATABASE_URL_VARIABLE)
    if reference and (engine := engine_of_module(reference)) is not None:
        return engine
    url = "--database-url postgresql://user@host/database"
    if reference:
        raise usage_error(
            f"the module of {reference} has no engine; import the engine into that module, set "
            f"{DATABASE_URL_VARIABLE}, or give {url} or --app module:engine"
        )
    raise usage_error(
        f"no database is named; give --app module:queue or --app module:engine, or set {APP_VARIABLE} to that, or name "
        f"the database by {url} or {DATABASE_URL_VARIABLE}"
    )


CONNECT_SECONDS = 10
"""Time limit for connecting, unless the URL has ``?connect_timeout=``."""

_PORT = 5432
_DIALECTS = {"postgresql", "postgres"}
_OF_ASYNCPG = {
    "async_fallback", "command_timeout", "max_cacheable_statement_size", "max_cached_statement_lifetime",
    "prepared_statement_cache_size", "prepared_statement_name_func", "statement_cache_size", "timeout",
}  # fmt: skip


def psycopg_url(text: str, source: str) -> URL:
    """Parse a URL, and return it for psycopg. *source* names the option or variable that the URL comes from.

    Raise CommandError if the URL is unreadable or not PostgreSQL's. The error names *source* and shows no password.
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
    """Return a URL as libpq reads it: parameters of asyncpg get their names in libpq, or are left out."""
    if not url.drivername.endswith("+asyncpg"):
        return url.set(drivername="postgresql")
    query = dict(url.query)
    if (ssl := query.pop("ssl", None)) is not None and "sslmode" not in query:
        query["sslmode"] = {"true": "require", "True": "require"}.get(str(ssl), ssl)
    return url.set(
        drivername="postgresql", query={name: value for name, value in query.items() if name not in _OF_ASYNCPG}
    )


def display_url(url: URL) -> str:
    """Return a URL for messages: role, host, port and database, without password and further parameters."""
    host, port = _host_and_port(url)
    user = f"{url.username}@" if url.username else ""
    address = f"{host}:{port}" if port else host
    if host.startswith("/"):
        return f"postgresql://{user}/{url.database or ''}?host={host}{f'&port={port}' if port else ''}"
    return f"postgresql://{user}{address}/{url.database or ''}"


def same_database(one: URL, other: URL) -> bool:
    """Return whether two URLs lead the same role to the same database, by whichever driver and parameters."""
    return _place(one) == _place(other)


def _place(url: URL) -> tuple[object, ...]:
    host, port = _host_and_port(url)
    return url.username, host, str(port or _PORT), url.database


def _host_and_port(url: URL) -> tuple[str, object]:
    host = url.host or str(url.query.get("host", "")) or "localhost"
    return host, url.port or url.query.get("port", "")


def connect_arguments(url: URL, name: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {"fallback_application_name": name}
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = CONNECT_SECONDS
    return arguments
