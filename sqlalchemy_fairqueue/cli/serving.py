"""``metrics``, ``dashboard`` and the probes of a worker: what commands serve by HTTP."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import contextlib
import json
import logging
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from sqlalchemy_fairqueue.cli.errors import CommandError, usage_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options, Spec
from sqlalchemy_fairqueue.cli.output import Result, print_message, writing

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.worker import AsyncWorker, Worker
    from sqlalchemy_fairqueue.worker.runtime import Health

Page = Callable[[str], tuple[HTTPStatus, str, bytes]]
"""Makes the answer to a request, from its Accept header: status, content type and content."""

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]\s]*):)?(?P<port>\d{1,5})", re.ASCII)
_LAST_PORT = 65_535
_GRACE_SECONDS = 2
_SIGNAL_CHECK = 1.0  # seconds


class Address(NamedTuple):
    """A host and a port that a command serves HTTP at; port 0 is any free one."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def refused(self, problem: object) -> CommandError:
        return usage_error(f"{self.host}:{self.port} cannot be served: {problem}")


def parse_address(text: str) -> Address:
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > _LAST_PORT:
        raise ValueError(f"{text!r:.80} is no address; give HOST:PORT, such as 0.0.0.0:9187, or a port of 127.0.0.1")
    return Address((found["host"] or "127.0.0.1").strip("[]"), int(found["port"]))


class Printed(StrEnum):
    """What ``fairqueue metrics --print`` prints: a dashboard for Grafana, or alert rules for Prometheus."""

    GRAFANA = "grafana"
    ALERTS = "alerts"


_FILES = {Printed.GRAFANA: "grafana_dashboard.json", Printed.ALERTS: "alert_rules.yaml"}
_METRICS_AT = Address("127.0.0.1", 9187)


def metrics(
    options: Options,
    *,
    http: Annotated[Address, Spec(parse=parse_address, metavar="HOST:PORT", shown="127.0.0.1:9187")] = _METRICS_AT,
    print_: Annotated[Printed | None, Spec(metavar="FILE")] = None,
) -> Result | None:
    """Serve the metrics of queues to Prometheus, at /metrics, until SIGTERM or Ctrl-C.

    The database is asked at most once a scrape. While it does not answer, fairqueue_up is 0.

    Options:
        http: Where to serve them; a port alone means 127.0.0.1.
        print_: Print this file and end: a dashboard for Grafana (grafana), or alert rules for Prometheus (alerts).
    """
    if print_ is not None:
        with writing() as out:
            out.write(files("sqlalchemy_fairqueue.metrics").joinpath(_FILES[print_]).read_text("utf-8"))
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
                raise http.refused(error) from error
            served = Address(http.host, server.server_port)
            print_message(f"metrics of {installation.target.database} at {served.url}/metrics")
            # A signal that comes right before a wait is handled only after it, so the waits are short.
            while not stopped.wait(_SIGNAL_CHECK):
                pass
            server.shutdown()
            server.server_close()
            thread.join()
    return None


def metrics_page(worker: "Worker | AsyncWorker", accepted: str = "") -> tuple[HTTPStatus, str, bytes]:
    """Return a worker's metrics as an HTTP answer; the Accept header *accepted* decides whether they have exemplars."""
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


@contextlib.contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    stopped = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, lambda *_: stopped.set()) for number in numbers}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def health_pages(health: "Callable[[], Health]") -> dict[str, Page]:
    def page(good: "Callable[[Health], bool]") -> Page:
        def answer(_: str) -> tuple[HTTPStatus, str, bytes]:
            found = health()
            status = HTTPStatus.OK if good(found) else HTTPStatus.SERVICE_UNAVAILABLE
            content = {"alive": found.alive, "ready": found.ready, "problems": found.problems}
            return status, "application/json", json.dumps(content).encode() + b"\n"

        return answer

    return {"/healthz": page(lambda found: found.alive), "/readyz": page(lambda found: found.ready)}


@contextlib.contextmanager
def serving(address: Address, pages: Mapping[str, Page]) -> Iterator[Address]:
    """Serve each page at its path, in threads, in a ``with`` block. Yield *address*, with a real port instead of 0."""

    class Answering(BaseHTTPRequestHandler):
        # Otherwise a probe that stays connected and silent would keep a thread for ever.
        timeout = 10

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self.send_error(HTTPStatus.NOT_FOUND, explain=f"there are {', '.join(sorted(pages))}")
                return
            status, kind, content = page(self.headers.get("Accept", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *_: Any) -> None:
            """Log nothing, since a probe a second would fill the log."""

    class Server(ThreadingHTTPServer):
        address_family = _family(address.host)
        daemon_threads = True

    try:
        server = Server(address, Answering)
    except OSError as error:
        raise address.refused(error) from error
    thread = threading.Thread(target=server.serve_forever, name="fairqueue-http", daemon=True)
    thread.start()
    try:
        yield Address(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def dashboard(
    options: Options,
    *,
    port: Annotated[int, Spec(min=0, max=65_535)] = 8080,
    host: Annotated[str, Spec(metavar="HOST")] = "127.0.0.1",
    operator: bool = False,
    payloads: bool = False,
    trace_url: Annotated[str | None, Spec(metavar="URL")] = None,
) -> Result | None:
    """Serve the dashboard of the queues until Ctrl-C; with prometheus-client, metrics are at /metrics.

    Nobody logs in: it is read-only unless --operator is given. To let others in, mount it in an application that knows
    its users.

    Options:
        port: The port to listen at; 0: any free one.
        host: The address to listen at. If other machines can reach it, --operator and --payloads are refused.
        operator: Everybody on this machine may change queues.
        payloads: Everybody on this machine may see payloads and errors.
        trace_url: The URL of a trace in your tracing tool, with {trace_id} in place of the trace's id.
    """
    try:
        import uvicorn
        from starlette.middleware.trustedhost import TrustedHostMiddleware

        from sqlalchemy_fairqueue.dashboard import Access, Role, create_dashboard
    except ImportError as error:
        raise usage_error(
            f"the dashboard needs more: {error}; pip install 'sqlalchemy-fairqueue[dashboard]'"
        ) from error
    local = host in {"127.0.0.1", "::1", "localhost"}
    if (operator or payloads) and not local:
        raise usage_error(
            f"--operator and --payloads are for this machine alone, and --host {host} lets others in; "
            "mount the dashboard in an application that knows its users"
        )
    access = Access("whoever is on this machine", Role.OPERATOR if operator else Role.VIEWER, payloads=payloads)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with open_installation(options) as installation:
        queues = installation.queues() if installation.target.queue or installation.target.application else []
        app = create_dashboard(
            installation.target.engine,
            *queues,
            schema=installation.schema,
            authorize=(lambda _: access) if local else None,
            trace_url=trace_url,
        )
        if local:
            # Otherwise a page of another site, whose name leads to this machine, could use the dashboard.
            app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", "::1"])
        _mount_metrics(app)
        try:
            listening = socket.create_server((host, port), family=_family(host))
        except OSError as error:
            raise Address(host, port).refused(error) from error
        served = Address(*listening.getsockname()[:2])
        print_message(f"dashboard of {installation.target.database} at {served.url}/")
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_GRACE_SECONDS)
        uvicorn.Server(config).run(sockets=[listening])
    return None


def _mount_metrics(app: Any) -> None:
    try:
        from sqlalchemy_fairqueue.metrics import QueueCollector, asgi_application
    except ImportError:
        return
    app.mount("/metrics", asgi_application(QueueCollector(figures=app.state.reading.figures)))
