"""``worker``: a worker process for queues of an application."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
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

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import Queue
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
from sqlalchemy_fairqueue.cli.options import DATABASE_URL_VARIABLE, Options, Spec
from sqlalchemy_fairqueue.cli.output import Result
from sqlalchemy_fairqueue.cli.serving import Address, health_pages, metrics_page, parse_address, serving
from sqlalchemy_fairqueue.cli.target import (
    application_reference,
    choose_database,
    connect_arguments,
    display_url,
)
from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.logs import JsonFormatter
from sqlalchemy_fairqueue.queue.handlers import handlers_of, session_type_of
from sqlalchemy_fairqueue.texts import clean

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.reports import Leftovers
    from sqlalchemy_fairqueue.worker import AsyncWorker, Worker

Probed = Callable[["Worker | AsyncWorker"], contextlib.AbstractContextManager[None]]

Left = Sequence["Leftovers"] | None
"""The messages that a drained worker left; None if the worker did not drain, or if they are not known."""
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


Reference = Annotated[str | None, Spec(metavar="MODULE:NAME")]


def worker(
    options: Options,
    queues: Annotated[list[str], Spec(metavar="MODULE:QUEUE...")],
    *,
    concurrency: Annotated[int, Spec(names=("--concurrency", "-c"))] = 8,
    lease: timedelta | None = None,
    poll_interval: timedelta | None = None,
    listen: Annotated[bool, Spec(names=("--listen/--no-listen",))] = True,
    grace: timedelta | None = None,
    drain: bool = False,
    in_loop: Annotated[bool | None, Spec(names=("--async/--threads",))] = None,
    import_: Annotated[list[str] | None, Spec(metavar="MODULE")] = None,
    session_factory: Reference = None,
    sync_session_factory: Reference = None,
    worker_engine: Reference = None,
    prefetch: int | None = None,
    max_bytes: int | None = None,
    name: str | None = None,
    http: Annotated[Address | None, Spec(parse=parse_address, metavar="HOST:PORT")] = None,
    log_level: Annotated[LogLevel, Spec(metavar="LEVEL")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, Spec(metavar="FORMAT")] = LogFormat.TEXT,
) -> Result:
    """Call the handlers of one or several queues of an application.

    At the first SIGTERM or SIGINT the worker takes no more messages, releases those that no handler has begun, and lets
    handlers finish within --grace. Then it releases the messages of handlers that still run, and exits with 0. Released
    attempts do not count. A second signal ends the process at once, unless it comes within two seconds of the first.
    With --drain the worker stops by itself.

    The database is the first of these: --database-url; the engine that --app names; $FAIRQUEUE_DATABASE_URL; the engine
    in the module of --app or, without --app, in the module of the first queue. The log goes to stderr.

    With --http the worker answers probes. /healthz answers 503 if the process should be restarted. /readyz answers 503
    while the worker takes no messages, such as while the database is away.

    Options:
        queues: The queues, served in turn.
        concurrency: Handlers that run at a time.
        lease: Time after which the messages of a worker that died go to others. Default: 30s.
        poll_interval: Longest time between two polls when idle. Default: 5s, with --no-listen 1s.
        listen: Listen for notifications, which a transaction pooler does not pass on.
        grace: How long handlers may run on after a signal. Default: 30s.
        drain: Stop when no message can be delivered, and show what is left.
        in_loop: Call handlers in an event loop, or in threads. Default: by the application's handlers and engine.
        import_: A module to import, for the handlers in it. Can be repeated.
        session_factory: A factory of handlers' sessions, like the application's sessionmaker. Default: plain sessions.
        sync_session_factory: With --async, a factory of the sessions of plain functions. Default: plain sessions.
        worker_engine: With --async, an engine for the worker's own connections. Default: the application's.
        prefetch: Most messages leased ahead of their handlers, 0 to 500. Default: 500.
        max_bytes: Most bytes of payloads and headers in one dequeue, and most bytes of payloads that wait for handlers.
            Default: 64 MiB.
        name: The consumer's name in leases and in the log. Default: host, process and a random part.
        http: Serve /healthz, /readyz and /metrics at this address; a port alone means 127.0.0.1.
        log_level: The least severe records to log: {choices}.
        log_format: text, or json with one object in each line.
    """
    found = [load_queue(name, options.app_dir) for name in queues]
    for module in import_ or ():
        load_module(module, options.app_dir)
    reference = application_reference(options)
    application = load_object(reference, options.app_dir) if reference else found[0]
    _configure_logging(log_level, log_format)

    def warn(chosen: str, other: str) -> None:
        logging.getLogger(__name__).warning(
            "handlers' sessions are for %s, the database of %s, and not for that of the engine in the module of "
            "%s, %s; unset the variable to work with the application's engine",
            chosen, DATABASE_URL_VARIABLE, reference or queues[0], other,
        )  # fmt: skip

    given = choose_database(options, application, reference or queues[0], warn)
    if in_loop is None:
        in_loop = _is_asynchronous(found, application, reference or queues[0])
    if sync_session_factory and not in_loop:
        raise usage_error("--sync-session-factory is for --async; with threads give --session-factory")
    if worker_engine and not in_loop:
        raise usage_error("--worker-engine is for --async; with threads leave it out")
    arguments: dict[str, Any] = {
        "concurrency": concurrency, "listen": listen, "lease": lease, "poll_interval": poll_interval, "grace": grace,
        "session_factory": session_factory and load_callable(session_factory, options.app_dir),
        "prefetch": prefetch, "max_bytes": max_bytes, "name": name,
    }  # fmt: skip
    if in_loop:
        arguments |= {
            "sync_session_factory": sync_session_factory and load_callable(sync_session_factory, options.app_dir),
            "worker_engine": worker_engine and load_engine(worker_engine, options.app_dir),
        }
    run = _run_tasks if in_loop else _run_threads
    around = partial(_around, http, _references(options, queues, found))
    try:
        worker_name, counts, left = run(given, found, arguments, around, drain=drain)
    except DRIVER_ERRORS as error:
        raise command_error(error, display_url(given if isinstance(given, URL) else given.url)) from error
    document: dict[str, Any] = {"worker": worker_name, "queues": [queue.name for queue in found], "stats": counts}
    if not drain:
        return Result(document)
    shown = None if left is None else [_leftovers(one) for one in left]
    return Result(document | {"left": shown}, tuple(line for one in left or () for line in str(one).splitlines()))


def _leftovers(left: "Leftovers") -> dict[str, Any]:
    reasons = [
        {
            "waits_for": str(one.reason), "shared_limit": one.limit, "messages": one.messages, "channels": one.channels,
            "first_at": one.until,
        }
        for one in left.reasons
    ]  # fmt: skip
    counts = {name: getattr(left, name) for name in ("ready", "scheduled", "held", "leased")}
    return {"queue": left.queue, **counts, "reasons": reasons}


@contextlib.contextmanager
def _optional() -> Iterator[None]:
    """Log an error of the block as a warning, since the worker's role may lack the right to read what --drain left."""
    try:
        yield
    except (FairQueueError, SQLAlchemyError) as error:
        logging.getLogger(__name__).warning("what is left in the queues is not known: %s", error)


def _is_asynchronous(queues: list[Queue], application: object, reference: str) -> bool:
    if any(handler.asynchronous for queue in queues for handler in handlers_of(queue).values()):
        return True
    if isinstance(application, (Engine, AsyncEngine)):
        return isinstance(application, AsyncEngine)
    with contextlib.suppress(CommandError):
        return isinstance(engine_of_module(reference), AsyncEngine)
    # The module has several engines. None of them is used, since an option or the variable names the database.
    return False


def _references(options: Options, names: list[str], queues: list[Queue]) -> References:
    """Return the options that name each queue, like ``--app m:queue``. The log suggests commands with these options."""
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
    runner._options = replace(runner._options, references=references)  # noqa: SLF001 - Worker takes no such argument
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
        if isinstance(given, URL) and arguments["sync_session_factory"] is None and _takes_sync_sessions(queues):
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
    return {
        "pool_size": arguments["concurrency"] + _SPARE_CONNECTIONS,
        "pool_pre_ping": True,
        "connect_args": connect_arguments(given, "fairqueue worker"),
    }


def _configure_logging(level: LogLevel, written: LogFormat) -> None:
    # basicConfig does nothing if the application has configured logging.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if written is LogFormat.JSON else _Formatter(_LOG_FORMAT))
    logging.basicConfig(handlers=[handler], level=level.upper())


class _Formatter(logging.Formatter):
    """Escapes control characters: names and errors may hold some, and the log may go to a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(clean(line.expandtabs()) for line in super().format(record).splitlines())
