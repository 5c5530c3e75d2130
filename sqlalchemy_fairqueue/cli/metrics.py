"""``metrics``: an exporter of Prometheus metrics, and the Grafana dashboard and alert rules for them."""

# Annotations are read when the program starts, so that they must not be postponed.
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from http import HTTPStatus
from importlib.resources import files
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from sqlalchemy_fairqueue.cli.addresses import Address, parse_address
from sqlalchemy_fairqueue.cli.errors import usage_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options, option_parser
from sqlalchemy_fairqueue.cli.output import print_message, writing
from sqlalchemy_fairqueue.cli.results import Result

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.worker import AsyncWorker, Worker


class Printed(StrEnum):
    """Files that belong to the metrics."""

    GRAFANA = "grafana"
    ALERTS = "alerts"


_SIGNAL_CHECK = 1.0  # seconds
_FILES = {Printed.GRAFANA: "grafana_dashboard.json", Printed.ALERTS: "alert_rules.yaml"}


def metrics(
    options: Options,
    *,
    http: Annotated[
        Address,
        typer.Option(
            "--http",
            parser=option_parser(parse_address),
            metavar="HOST:PORT",
            help="Where to serve them; a port alone is one of 127.0.0.1.",
            show_default="127.0.0.1:9187",
        ),
    ] = Address("127.0.0.1", 9187),  # noqa: B008 - a value that never changes
    printed: Annotated[
        Printed | None,
        typer.Option(
            "--print", metavar="FILE", help="Print a file and end: grafana, a dashboard; alerts, rules for Prometheus."
        ),
    ] = None,
) -> Result | None:
    """Serve the metrics of queues to Prometheus, at /metrics, until SIGTERM or Ctrl-C.

    The database is asked once a scrape. While it does not answer, fairqueue_up is 0.
    """
    if printed is not None:
        with writing() as out:
            out.write(files("sqlalchemy_fairqueue.metrics").joinpath(_FILES[printed]).read_text("utf-8"))
        return None
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        from sqlalchemy_fairqueue.metrics import QueueCollector
    except ImportError as error:
        raise usage_error(f"metrics need more: {error}; pip install 'sqlalchemy-fairqueue[metrics]'") from error
    with open_installation(options) as installation:
        named = installation.queues() if installation.target.queue else ()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(QueueCollector(installation.target.engine, *named, schema=installation.schema))
        with _until_stopped() as stopped:
            try:
                server, thread = start_http_server(http.port, http.host, registry)
            except OSError as error:
                raise usage_error(f"{http.host}:{http.port} cannot be served: {error}") from error
            served = Address(http.host, server.server_port)
            print_message(f"metrics of {installation.target.database} at {served.url}/metrics")
            # A signal right before a wait does not end it: its handler runs when the wait is over.
            while not stopped.wait(_SIGNAL_CHECK):
                pass
            server.shutdown()
            server.server_close()
            thread.join()
    return None


def metrics_page(worker: "Worker | AsyncWorker", accepted: str = "") -> tuple[HTTPStatus, str, bytes]:
    """The metrics of a worker as an answer, for the HTTP server of its process: status, content type and content.

    Who accepts OpenMetrics gets the exemplars, too.

    Where prometheus-client is not installed, it is an answer that says so.
    """
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        from sqlalchemy_fairqueue.metrics import WorkerCollector
    except ImportError:
        advice = "metrics need prometheus-client; pip install 'sqlalchemy-fairqueue[metrics]'\n"
        return HTTPStatus.NOT_IMPLEMENTED, "text/plain; charset=utf-8", advice.encode()
    registry = CollectorRegistry()
    registry.register(WorkerCollector(worker))
    encode, content_type = choose_encoder(accepted)
    return HTTPStatus.OK, content_type, encode(registry)


@contextmanager
def _until_stopped() -> Iterator[Event]:
    """An event that SIGTERM and SIGINT set."""
    stopped = Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, lambda *_: stopped.set()) for number in numbers}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
