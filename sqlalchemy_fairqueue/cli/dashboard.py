"""``dashboard``: the dashboard of the queues, served alone, with the metrics beside it."""

# Annotations are read when the program starts, so that they must not be postponed.
import contextlib
import logging
import sys
from typing import Annotated, Any

import typer

from sqlalchemy_fairqueue.cli.addresses import Address
from sqlalchemy_fairqueue.cli.errors import usage_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.cli.output import print_message
from sqlalchemy_fairqueue.cli.results import Result

_GRACE_SECONDS = 2


def dashboard(
    options: Options,
    *,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, metavar="N", help="0: any free one.")] = 8080,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Who else may reach it.")] = "127.0.0.1",
    operator: Annotated[bool, typer.Option("--operator", help="Everybody on this machine may change queues.")] = False,
    payloads: Annotated[
        bool,
        typer.Option("--payloads", help="Everybody on this machine may see payloads and errors."),
    ] = False,
    trace_url: Annotated[
        str | None,
        typer.Option("--trace-url", metavar="URL", help="Where a trace is shown, with {trace_id}.", show_default=False),
    ] = None,
) -> Result | None:
    """Serve the dashboard of the queues until Ctrl-C; metrics for Prometheus are at /metrics.

    Nobody logs in: it is read-only unless --operator is given. To let others in, mount it in an application that knows
    its users.
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
            # Or a page of another site whose name leads to this machine could use it.
            app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", "::1"])
        _mount_metrics(app)
        config = uvicorn.Config(
            app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=_GRACE_SECONDS
        )
        server = _announced(uvicorn.Server)(config, installation.target.database)
        # uvicorn ends the program where it cannot listen, with a status that means another thing here.
        with contextlib.suppress(SystemExit):
            server.run()
        if not server.started:
            raise usage_error(f"{host}:{port} cannot be served; the line above says why")
    return None


def _mount_metrics(app: Any) -> None:
    """Serve /metrics, with the figures of the dashboard, where prometheus-client is installed."""
    try:
        from sqlalchemy_fairqueue.metrics import QueueCollector, asgi_application
    except ImportError:
        return
    app.mount("/metrics", asgi_application(QueueCollector(figures=app.state.reading.figures)))


def _announced(server: type[Any]) -> type[Any]:
    """A server that says where it is when it is there."""

    class Announced(server):  # type: ignore[misc]
        def __init__(self, config: Any, database: str) -> None:
            super().__init__(config)
            self.database = database

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                host, port = self.servers[0].sockets[0].getsockname()[:2]
                print_message(f"dashboard of {self.database} at {Address(host, port).url}/")

    return Announced
