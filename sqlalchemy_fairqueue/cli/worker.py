"""``worker``: a worker process for queues of an application, until a signal stops it."""

# Annotations are read when the program starts, so that they must not be postponed.
import asyncio
import contextlib
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.addresses import Address, parse_address
from sqlalchemy_fairqueue.cli.application import (
    AnyEngine,
    engine_of_module,
    load_callable,
    load_engine,
    load_module,
    load_object,
    load_queue,
)
from sqlalchemy_fairqueue.cli.errors import CommandError, usage_error
from sqlalchemy_fairqueue.cli.failures import DRIVER_ERRORS, command_error
from sqlalchemy_fairqueue.cli.leftovers import leftovers_document, leftovers_texts
from sqlalchemy_fairqueue.cli.metrics import metrics_page
from sqlalchemy_fairqueue.cli.options import DATABASE_URL_VARIABLE, Options, option_parser
from sqlalchemy_fairqueue.cli.probes import health_pages, serving
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.target import application_reference, choose_database, engine_beside
from sqlalchemy_fairqueue.cli.urls import connect_arguments, display_url, same_database
from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.formats import parse_duration
from sqlalchemy_fairqueue.logs import JsonFormatter
from sqlalchemy_fairqueue.queue.handlers import handlers_of, session_type_of
from sqlalchemy_fairqueue.texts import clean

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.reports import Leftovers
    from sqlalchemy_fairqueue.worker import AsyncWorker, Worker

Probed = Callable[["Worker | AsyncWorker"], contextlib.AbstractContextManager[None]]

Left = Sequence["Leftovers"] | None
"""The messages that a drained worker left. None: they are not known."""
Ran = tuple[str, dict[str, int], Left]
References = dict[tuple[str | None, str], str]

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SPARE_CONNECTIONS = 2


class LogLevel(StrEnum):
    """The least severe records that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The form of a record in the log."""

    TEXT = "text"
    JSON = "json"


def _duration_option(name: str, words: str) -> Any:
    return typer.Option(name, parser=option_parser(parse_duration), metavar="DURATION", help=words, show_default=False)


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
        _duration_option("--lease", "Time after which the messages of a worker that died go to others. Default: 30s."),
    ] = None,
    poll_interval: Annotated[
        timedelta | None,
        _duration_option(
            "--poll-interval", "Longest time between two polls when idle. Default: 5s, with --no-listen 1s."
        ),
    ] = None,
    listen: Annotated[
        bool, typer.Option("--listen/--no-listen", help="Listen for notifications; not behind a transaction pooler.")
    ] = True,
    grace: Annotated[
        timedelta | None, _duration_option("--grace", "How long handlers may run on after a signal. Default: 30s.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Stop when no message can be delivered, and show what is left.")
    ] = False,
    in_loop: Annotated[
        bool | None,
        typer.Option(
            "--async/--threads",
            help="Call handlers in an event loop, or in threads. Default: by the application's handlers and engine.",
            show_default=False,
        ),
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="A module to import, for the handlers in it. Can be repeated."),
    ] = None,
    session_factory: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="A factory of handlers' sessions, like the application's sessionmaker. Default: plain ones.",
            show_default=False,
        ),
    ] = None,
    sync_session_factory: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="With --async, a factory of the sessions of plain functions. Default: plain ones.",
            show_default=False,
        ),
    ] = None,
    worker_engine: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="With --async, an engine for the worker's own connections. Default: the application's.",
            show_default=False,
        ),
    ] = None,
    prefetch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Most messages leased ahead of their handlers, 0 to 500. Default: 500.",
            show_default=False,
        ),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Most bytes of payloads and headers in a dequeue, and waiting for handlers. Default: 64 MiB.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The consumer's name in leases and in the log. Default: host, process and a random part.",
            show_default=False,
        ),
    ] = None,
    http: Annotated[
        Address | None,
        typer.Option(
            "--http",
            parser=option_parser(parse_address),
            metavar="HOST:PORT",
            help="Serve /healthz, /readyz and /metrics there; a port alone is one of 127.0.0.1.",
            show_default=False,
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", metavar="LEVEL", help=", ".join(LogLevel))
    ] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", metavar="FORMAT", help="text, or json: an object a line.")
    ] = LogFormat.TEXT,
) -> Result:
    """Call the handlers of one or several queues of an application.

    At the first SIGTERM or SIGINT the worker takes no more messages, lets handlers finish within --grace, releases
    the rest without counting an attempt, and exits with 0. A second signal ends the process at once, unless it comes
    within two seconds of the first. With --drain the worker stops by itself.

    The database is that of --database-url, of an engine named by --app, of the environment, or of the engine in the
    module of the first queue. It logs to stderr.

    With --http it answers probes: /healthz with 503 if the process should be restarted, and /readyz with 503 while it
    takes no messages, as while the database is away.
    """
    if not listen and poll_interval is None:
        poll_interval = timedelta(seconds=1)
    found = [load_queue(name, options.app_dir) for name in queues]
    for module in modules or ():
        load_module(module, options.app_dir)
    reference = application_reference(options)
    application = load_object(reference, options.app_dir) if reference else found[0]
    _configure_logging(log_level, log_format)
    given = _database(options, application, reference or queues[0])
    if in_loop is None:
        in_loop = _is_asynchronous(found, application, reference or queues[0])
    if sync_session_factory and not in_loop:
        raise usage_error("--sync-session-factory is for --async; with threads give --session-factory")
    if worker_engine and not in_loop:
        raise usage_error("--worker-engine is for --async; with threads leave it out")
    arguments: dict[str, Any] = {"concurrency": concurrency, "listen": listen}
    optional = {
        "lease": lease,
        "poll_interval": poll_interval,
        "grace": grace,
        "session_factory": session_factory and load_callable(session_factory, options.app_dir),
        "sync_session_factory": sync_session_factory and load_callable(sync_session_factory, options.app_dir),
        "worker_engine": worker_engine and load_engine(worker_engine, options.app_dir),
        "prefetch": prefetch,
        "max_bytes": max_bytes,
        "name": name,
    }
    arguments |= {name: value for name, value in optional.items() if value is not None}
    run = _run_tasks if in_loop else _run_threads
    around = partial(_around, http, _references(options, queues, found))
    try:
        worker_name, counts, left = run(given, found, arguments, around, drain=drain)
    except DRIVER_ERRORS as error:
        raise command_error(error, display_url(given if isinstance(given, URL) else given.url)) from error
    document: dict[str, Any] = {"worker": worker_name, "queues": [queue.name for queue in found], "stats": counts}
    if not drain:
        return Result(document)
    shown = None if left is None else leftovers_document(left)
    return Result(document | {"left": shown}, tuple(leftovers_texts(left or ())))


def _database(options: Options, application: object, reference: str) -> URL | AnyEngine:
    """The database that the options choose: the application's engine, with all that is set on it, if it is that one."""
    given = choose_database(options, application, reference)
    if not isinstance(given, URL) or options.database_url:
        return given
    engine = engine_beside(reference)
    if engine is not None and same_database(engine.url, given):
        return engine
    if engine is not None:
        logging.getLogger(__name__).warning(
            "handlers' sessions are for %s, the database of %s, and not for that of the engine in the module of "
            "%s, %s; unset the variable to work with the application's engine",
            display_url(given), DATABASE_URL_VARIABLE, reference, display_url(engine.url),
        )  # fmt: skip
    return given


@contextlib.contextmanager
def _optional() -> Iterator[None]:
    """What is left may not be readable by the worker's role, which does not need it for its work."""
    try:
        yield
    except (FairQueueError, SQLAlchemyError) as error:
        logging.getLogger(__name__).warning("what is left in the queues is not known: %s", error)


def _is_asynchronous(queues: list[Queue], application: object, reference: str) -> bool:
    """Whether the application is for an event loop: a handler is async, or else its engine is.

    The option or variable that names the database does not count. Only an event loop can call an async handler, and it
    calls plain ones as well.
    """
    if any(handler.asynchronous for queue in queues for handler in handlers_of(queue).values()):
        return True
    if isinstance(application, (Engine, AsyncEngine)):
        return isinstance(application, AsyncEngine)
    with contextlib.suppress(CommandError):
        return isinstance(engine_of_module(reference), AsyncEngine)
    # It has several engines, and another option names the database.
    return False


def _references(options: Options, names: list[str], queues: list[Queue]) -> References:
    """The options by which another command finds each queue, for the worker's log."""
    application = application_reference(options)
    folder = "" if options.app_dir == Options().app_dir else f" --app-dir {shlex.quote(options.app_dir)}"
    found = {}
    for name, queue in zip(names, queues, strict=True):
        words = f"--app {shlex.quote(application or name)}{folder}"
        if application not in {None, name}:
            schema = "" if queue.schema is None else f" --schema {shlex.quote(queue.schema)}"
            words += f" --queue {shlex.quote(queue.name)}{schema}"
        found[queue.schema, queue.name] = words
    return found


@contextlib.contextmanager
def _around(http: Address | None, references: References, runner: "Worker | AsyncWorker") -> Iterator[None]:
    """Let a worker name its queues as this command does, and answer its supervisor's probes while it runs."""
    runner._options = replace(runner._options, references=references)  # noqa: SLF001 - no argument of programs
    if http is None:
        yield
        return
    with serving(http, health_pages(runner.health) | {"/metrics": partial(metrics_page, runner)}) as served:
        logging.getLogger(__name__).info("/healthz and /readyz are at %s", served.url)
        yield


def _run_threads(
    given: URL | AnyEngine, queues: list[Queue], arguments: dict[str, Any], probed: Probed, *, drain: bool
) -> Ran:
    from sqlalchemy_fairqueue.worker import Worker

    if isinstance(given, AsyncEngine):
        raise usage_error(
            f"--threads needs an Engine, and that of the application, to {display_url(given.url)}, is an AsyncEngine; "
            "leave --threads out, name an Engine by --app MODULE:NAME, or the database by --database-url"
        )
    engine = given if isinstance(given, Engine) else create_engine(given, **_pool(given, arguments))
    runner = Worker(engine, *queues, **arguments)
    with probed(runner):
        runner.run(handle_signals=True, drain=drain)
    left: Left = None
    if drain:
        with _optional():
            left = runner.leftovers()
    engine.dispose()
    return runner.name, runner.stats.as_dict(), left


def _run_tasks(
    given: URL | AnyEngine, queues: list[Queue], arguments: dict[str, Any], probed: Probed, *, drain: bool
) -> Ran:
    try:
        from sqlalchemy.ext.asyncio import create_async_engine

        from sqlalchemy_fairqueue.worker import AsyncWorker
    except ImportError as error:
        raise usage_error(f"--async needs more: {error}; pip install 'sqlalchemy-fairqueue[asyncio]'") from error

    if isinstance(given, Engine):
        raise usage_error(
            f"an event loop needs an AsyncEngine, and that of the application, to {display_url(given.url)}, is an "
            "Engine; make it by create_async_engine, name an AsyncEngine by --app MODULE:NAME, or the database by "
            "--database-url"
        )

    async def serve() -> Ran:
        engine = given if isinstance(given, AsyncEngine) else create_async_engine(given, **_pool(given, arguments))
        sync_engine = None
        if isinstance(given, URL) and "sync_session_factory" not in arguments and _takes_sync_sessions(queues):
            sync_engine = create_engine(given, **_pool(given, arguments))
            arguments["sync_session_factory"] = sessionmaker(sync_engine, class_=session_type_of(queues, Session))
        runner = AsyncWorker(engine, *queues, **arguments)
        with probed(runner):
            await runner.run(handle_signals=True, drain=drain)
        left: Left = None
        if drain:
            with _optional():
                left = await runner.leftovers()
        await engine.dispose()
        if sync_engine is not None:
            sync_engine.dispose()
        return runner.name, runner.stats.as_dict(), left

    return asyncio.run(serve())


def _takes_sync_sessions(queues: list[Queue]) -> bool:
    return any(one.session and not one.asynchronous for queue in queues for one in handlers_of(queue).values())


def _pool(given: URL, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an engine whose pool serves the handlers; the worker's own connections are outside of it."""
    return {
        "pool_size": arguments["concurrency"] + _SPARE_CONNECTIONS,
        "pool_pre_ping": True,
        "connect_args": connect_arguments(given, "fairqueue worker"),
    }


def _configure_logging(level: LogLevel, written: LogFormat) -> None:
    # basicConfig does nothing where the application has configured logging.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if written is LogFormat.JSON else _Formatter(_LOG_FORMAT))
    logging.basicConfig(handlers=[handler], level=level.upper())


class _Formatter(logging.Formatter):
    """Escapes control characters: names and errors may hold some, and the log may go to a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(clean(line.expandtabs()) for line in super().format(record).splitlines())
