"""Where a command works: the database, the schema, the queue, from options, environment and application."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.cli.applications import engine_beside, load
from sqlalchemy_fairqueue.cli.failures import Failure, failure_of, usage
from sqlalchemy_fairqueue.cli.options import APP_VARIABLE, DATABASE_URL_VARIABLE
from sqlalchemy_fairqueue.cli.urls import connect_arguments, psycopg_url, shown_url, with_psycopg
from sqlalchemy_fairqueue.engines import check_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL

    from sqlalchemy_fairqueue.cli.applications import AnyEngine
    from sqlalchemy_fairqueue.cli.options import Options


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command works.

    Attributes:
        engine: To the database.
        schema: The schema of the installation; None: found through the search_path.
        queue: The queue that the options or the application name, None if they name none.
        application: The application's object for that queue, with its codec and defaults, if it was loaded.
    """

    engine: Engine
    schema: str | None
    queue: str | None
    application: Queue | None

    @property
    def shown(self) -> str:
        """The database, without the password."""
        return shown_url(self.engine.url)


@contextlib.contextmanager
def place_of(options: Options) -> Iterator[Place]:
    """Find the place, and tell what goes wrong there with the database's name.

    Raises:
        Failure: No database is named, or the application cannot be loaded; whatever the database refuses.
    """
    wanted = application_named(options)
    application = load(wanted, options.app_dir) if wanted else None
    if wanted and not isinstance(application, (Queue, Engine, AsyncEngine)):
        raise usage(f"{wanted!r} is a {type(application).__name__}, not a Queue or an Engine")
    queue = application if isinstance(application, Queue) else None
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(_engine(options, application, wanted))
        place = Place(
            engine,
            options.schema or (queue.schema if queue else None),
            options.queue or (queue.name if queue else None),
            queue if queue and options.queue in {None, queue.name} else None,
        )
        try:
            yield place
        except DBAPIError as error:
            raise failure_of(error, place.shown) from error


def application_named(options: Options) -> str | None:
    """The ``module:name`` that the options or the environment name, None if neither does."""
    return options.app or os.environ.get(APP_VARIABLE, "").strip() or None


@contextlib.contextmanager
def _engine(options: Options, application: object, wanted: str | None) -> Iterator[Engine]:
    given = database(options, application, wanted)
    if isinstance(given, Engine):
        check_driver(given)
        yield given
        return
    url = with_psycopg(given.url, f"the engine of {wanted}") if isinstance(given, AsyncEngine) else given
    # A command that asks often on one connection would prepare its statements, which not every pooler carries along.
    arguments = {**connect_arguments(url, "fairqueue"), "prepare_threshold": None}
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=arguments)
    except ImportError as error:
        raise usage(f"psycopg cannot be used: {error}; pip install 'psycopg[binary]'") from error
    try:
        yield engine
    finally:
        engine.dispose()


def database(options: Options, application: object, wanted: str | None) -> URL | AnyEngine:
    """The database by the first that names one.

    In this order: --database-url, an engine named by --app, the environment, the module of the queue named by --app.
    """
    if options.database_url:
        return psycopg_url(options.database_url, "--database-url")
    if isinstance(application, (Engine, AsyncEngine)):
        return application
    if named := os.environ.get(DATABASE_URL_VARIABLE, "").strip():
        return psycopg_url(named, DATABASE_URL_VARIABLE)
    if wanted and (beside := engine_beside(wanted)) is not None:
        return beside
    raise no_database()


def no_database() -> Failure:
    """The failure of a command line that names no database."""
    return usage(
        f"no database is named; set {DATABASE_URL_VARIABLE}, or give --database-url postgresql://user@host/database "
        "or --app module:engine"
    )
