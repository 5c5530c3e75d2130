"""``worker``: call the handlers of an application's queues until a signal ends it."""

# Annotations are read when the program starts, so that they must not be postponed.
import asyncio
import logging
import sys
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer
from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.applications import AnyEngine, load, load_callable, load_module, load_queue
from sqlalchemy_fairqueue.cli.failures import failure_of, usage
from sqlalchemy_fairqueue.cli.options import Options, typed
from sqlalchemy_fairqueue.cli.places import application_named, database
from sqlalchemy_fairqueue.cli.units import duration
from sqlalchemy_fairqueue.cli.urls import connect_arguments, shown_url, with_psycopg
from sqlalchemy_fairqueue.errors import clean

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SPARE = 2


class LogLevel(StrEnum):
    """What is logged, at least."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _duration_option(name: str, words: str) -> Any:
    return typer.Option(name, parser=typed(duration), metavar="DURATION", help=words, show_default=False)


def worker(
    options: Options,
    *,
    queues: Annotated[
        list[str], typer.Argument(metavar="MODULE:QUEUE...", help="The queues, served in turn.", show_default=False)
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", metavar="N", help="Handlers that run at a time.")
    ] = 8,
    lease: Annotated[
        timedelta | None,
        _duration_option("--lease", "After so long without a sign of life others get the messages. Default: 30s."),
    ] = None,
    poll_interval: Annotated[
        timedelta | None,
        _duration_option(
            "--poll-interval", "Longest time between two looks when idle. Default: 5s, with --no-notify 1s."
        ),
    ] = None,
    notify: Annotated[
        bool, typer.Option("--notify/--no-notify", help="Be woken by notifications; not behind a transaction pooler.")
    ] = True,
    grace: Annotated[
        timedelta | None, _duration_option("--grace", "How long handlers may go on after a signal. Default: 30s.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="End as soon as nothing is left that could be delivered now.")
    ] = False,
    in_loop: Annotated[
        bool | None,
        typer.Option(
            "--async/--threads",
            help="Call handlers in an event loop, or in threads. Default: as the application's engine is.",
            show_default=False,
        ),
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import this too, for the handlers in it. Can be repeated."),
    ] = None,
    session_factory: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Makes the sessions of handlers, like the application's sessionmaker. Default: plain ones.",
            show_default=False,
        ),
    ] = None,
    prefetch: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Most messages taken ahead of their handler, 0 to 500. Default: 500.", show_default=False
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Shown beside its leases and in the log. Default: host, process and a random part.",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", metavar="LEVEL", help=", ".join(LogLevel))
    ] = LogLevel.INFO,
) -> Answer:
    """Call the handlers of one or several queues of an application.

    The first SIGTERM or SIGINT takes no more messages, lets handlers finish within --grace, gives the rest back
    uncounted, and ends with 0. The second one ends the process at once. With --drain it ends by itself.

    The database is that of --database-url, of an engine named by --app, of the environment, or of the engine in the
    module of the first queue. It logs to stderr.
    """
    if not notify and poll_interval is None:
        poll_interval = timedelta(seconds=1)
    found = [load_queue(place, options.app_dir) for place in queues]
    for module in modules or ():
        load_module(module, options.app_dir)
    wanted = application_named(options)
    given = database(options, load(wanted, options.app_dir) if wanted else found[0], wanted or queues[0])
    _log(log_level)
    arguments: dict[str, Any] = {"concurrency": concurrency, "notify": notify}
    optional = {
        "lease": lease,
        "poll_interval": poll_interval,
        "grace": grace,
        "session_factory": session_factory and load_callable(session_factory, options.app_dir),
        "prefetch": prefetch,
        "name": name,
    }
    arguments |= {name: value for name, value in optional.items() if value is not None}
    if in_loop is None:
        in_loop = isinstance(given, AsyncEngine)
    run = _run_tasks if in_loop else _run_threads
    try:
        called, counted = run(given, found, arguments, drain=drain)
    except DBAPIError as error:
        raise failure_of(error, shown_url(given if isinstance(given, URL) else given.url)) from error
    return Answer({"worker": called, "queues": [queue.name for queue in found], "stats": counted})


def _run_threads(
    given: URL | AnyEngine, queues: list[Queue], arguments: dict[str, Any], *, drain: bool
) -> tuple[str, dict[str, int]]:
    from sqlalchemy_fairqueue.worker import Worker  # noqa: PLC0415 - the other commands do without

    engine = given if isinstance(given, Engine) else create_engine(_url(given), **_pool(given, arguments))
    working = Worker(engine, *queues, **arguments)
    working.run(handle_signals=True, drain=drain)
    engine.dispose()
    return working.name, working.stats.as_dict()


def _run_tasks(
    given: URL | AnyEngine, queues: list[Queue], arguments: dict[str, Any], *, drain: bool
) -> tuple[str, dict[str, int]]:
    try:
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - needs greenlet

        from sqlalchemy_fairqueue.worker import AsyncWorker  # noqa: PLC0415 - the other commands do without
    except ImportError as error:
        raise usage(f"--async needs more: {error}; pip install 'sqlalchemy-fairqueue[asyncio]'") from error

    async def serve() -> tuple[str, dict[str, int]]:
        engine = given
        if not isinstance(engine, AsyncEngine):
            engine = create_async_engine(_url(engine), **_pool(engine, arguments))
        working = AsyncWorker(engine, *queues, **arguments)
        await working.run(handle_signals=True, drain=drain)
        await engine.dispose()
        return working.name, working.stats.as_dict()

    return asyncio.run(serve())


def _url(given: URL | AnyEngine) -> URL:
    return given if isinstance(given, URL) else with_psycopg(given.url, "the application's engine")


def _pool(given: URL | AnyEngine, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an engine: the worker's own connections are apart from its pool, which is for its handlers'."""
    return {
        "pool_size": arguments["concurrency"] + _SPARE,
        "pool_pre_ping": True,
        "connect_args": connect_arguments(_url(given), "fairqueue worker"),
    }


def _log(level: LogLevel) -> None:
    # An application that has set up its logging when it was imported is left alone.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(_FORMAT))
    logging.basicConfig(handlers=[handler], level=level.upper())


class _Formatter(logging.Formatter):
    """Names and errors of others go to a terminal: what they hold must not command it."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(clean(line.expandtabs()) for line in super().format(record).splitlines())
