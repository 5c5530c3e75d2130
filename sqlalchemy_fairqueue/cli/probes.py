"""HTTP server of a worker process, for the probes of its supervisor."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.addresses import Address
from sqlalchemy_fairqueue.cli.errors import usage_error

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.worker.health import Health

Page = Callable[[str], tuple[HTTPStatus, str, bytes]]
"""Makes an answer for who accepts so (the header): its status, its content type and its content."""


def health_pages(health: Callable[[], Health]) -> dict[str, Page]:
    """``/healthz`` and ``/readyz``: 200 or 503, and a JSON object that says why."""

    def page(good: Callable[[Health], bool]) -> Page:
        def answer(_: str) -> tuple[HTTPStatus, str, bytes]:
            found = health()
            status = HTTPStatus.OK if good(found) else HTTPStatus.SERVICE_UNAVAILABLE
            content = {"alive": found.alive, "ready": found.ready, "problems": found.problems}
            return status, "application/json", json.dumps(content).encode() + b"\n"

        return answer

    return {"/healthz": page(lambda found: found.alive), "/readyz": page(lambda found: found.ready)}


@contextmanager
def serving(address: Address, pages: Mapping[str, Page]) -> Iterator[Address]:
    """Serve pages by their paths in threads, for the time of the block. Yields the address with the port that it has.

    Raises:
        CommandError: The address cannot be served.
    """

    class Answering(BaseHTTPRequestHandler):
        # A probe that stays connected and silent keeps no thread for ever.
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
            """A probe a second would fill the log."""

    class Server(ThreadingHTTPServer):
        address_family = _family(address)
        daemon_threads = True

    try:
        server = Server(address, Answering)
    except OSError as error:
        raise usage_error(f"{address.host}:{address.port} cannot be served: {error}") from error
    thread = threading.Thread(target=server.serve_forever, name="fairqueue-http", daemon=True)
    thread.start()
    try:
        yield Address(address.host, server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _family(address: Address) -> Any:
    import socket

    return socket.AF_INET6 if ":" in address.host else socket.AF_INET
