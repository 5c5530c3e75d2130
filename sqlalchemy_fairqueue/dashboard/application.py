"""The ASGI application: routes, events for open pages, headers of answers, and errors."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from importlib.resources import files
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from sqlalchemy_fairqueue.dashboard.access import Refused, access_of
from sqlalchemy_fairqueue.dashboard.actions import Actions
from sqlalchemy_fairqueue.dashboard.base import Unread
from sqlalchemy_fairqueue.dashboard.pages import Pages
from sqlalchemy_fairqueue.dashboard.reading import Reading
from sqlalchemy_fairqueue.dashboard.rendering import rendered
from sqlalchemy_fairqueue.errors import (
    FairQueueError,
    InvalidArgument,
    NotGranted,
    UnknownChannel,
    UnknownGroup,
    UnknownSchedule,
)
from sqlalchemy_fairqueue.queue.base import schema_of
from sqlalchemy_fairqueue.texts import logged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
    from typing import Any

    from sqlalchemy import Engine
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from sqlalchemy_fairqueue.dashboard.access import Authorize
    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
    from sqlalchemy_fairqueue.queue import Queue

logger = logging.getLogger(__name__)

# If reading the figures takes long, they are kept for longer than the *keep* of the dashboard. Open pages then load
# anew although the figures are the same, to show new reasons of waits. The next three values say how often.
_OFTEN = 0.7
"""Open pages load anew at the earliest after this part of *keep*."""
_DUTY = 30
"""Open pages load anew after this many times the time that the last load took, to bound the cost."""
_SELDOM = 5
"""Open pages load anew at the latest after this many times *keep*, even if each load takes long."""
_LONGEST_SECONDS = 300
"""A stream of events ends after this time; the browser asks for another one, so that access is checked again."""
_HEADERS = {
    b"content-security-policy": b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    b"img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}
# By class of error: the status and the title of the answer, and what the log says before the error.
_ANSWERS = {
    NotGranted: (403, "A grant is missing", "the dashboard lacks a grant"),
    InvalidArgument: (400, "Not possible", ""),
    **dict.fromkeys((UnknownChannel, UnknownGroup, UnknownSchedule), (404, "Not here", "")),
    FairQueueError: (503, "The database refuses", "the database refused a page"),
}
_STATIC = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


def create_dashboard(
    engine: Engine | AsyncEngine,
    *queues: Queue,
    schema: str | None = None,
    authorize: Authorize | None = None,
    keep: timedelta = timedelta(seconds=2),
    trace_url: str | None = None,
) -> Starlette:
    """Make the dashboard, an ASGI application to mount in another one or to serve alone.

    The figures are read for all viewers together, and only while somebody views them. Without *authorize*, everybody
    who reaches the dashboard sees figures and names, and can change nothing.

    Args:
        engine: Connects to the database, as a role that is granted ``monitor``; for dead letters, messages and actions
            also ``operator``. An AsyncEngine must belong to the application's event loop.
        queues: The queues, with their codecs. Default: all of the installation.
        schema: The schema of the installation. Default: that of the queues, or the search_path finds it.
        authorize: A plain or async function that is called with each request. It returns an :class:`Access`, None for
            somebody who may see nothing, or a Response in place of the page, such as a redirect to a login.
        keep: How long figures are kept before they are read anew. They are kept for longer if reading them takes long.
        trace_url: Where a trace is shown, such as ``https://tempo.example/trace/{trace_id}``; ``{span_id}`` is the span
            of the enqueue. If :mod:`sqlalchemy_fairqueue.otel` has traced a message, the message's page links there.

    Raises:
        InvalidArgument: *trace_url* is no http address with ``{trace_id}`` in it, or another argument has a wrong type.

    Example:
        >>> def authorize(request: Request) -> Access | None:
        ...     user = request.headers.get("x-forwarded-user")
        ...     return Access(user, Role.OPERATOR) if user else None
        >>> app = Starlette(routes=[Mount("/queues", create_dashboard(engine, queue, authorize=authorize))])
        >>> [route.path for route in app.routes]
        ['/queues']
    """
    if trace_url is not None and not (trace_url.startswith(("https://", "http://")) and "{trace_id}" in trace_url):
        raise InvalidArgument(
            f"trace_url is {trace_url!r:.80}; give an address like https://tempo.example/trace/{{trace_id}}"
        )
    if authorize is not None and not callable(authorize):
        raise InvalidArgument(f"authorize is {authorize!r:.80}; give a function that takes the request")
    found = schema_of(queues)
    schema = found if schema is None else schema
    reading = Reading(engine, queues, schema=schema, keep=keep)
    pages = Pages(reading, authorize, trace_url)
    shared = (pages.tenants, pages.tenant, pages.workers)
    single = (
        pages.messages, pages.message, pages.plans, pages.plan, pages.limits, pages.groups, pages.group, pages.dead,
        pages.schedules, pages.audit, pages.health,
    )  # fmt: skip
    routes = [
        Route("/", pages.page(pages.overview, shared=True)),
        *(Route(f"/{make.__name__}", pages.page(make, shared=make in shared)) for make in (*shared, *single)),
        Route("/live", live(reading, authorize)),
        Route("/act", Actions(pages).act, methods=["POST"]),
        *(Route(f"/static/{name}", _static(name, kind)) for name, kind in _STATIC.items()),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(_Headers), Middleware(_Paths)],
        exception_handlers={
            HTTPException: _refusal,
            Refused: _answered,
            Unread: _unread,
            SQLAlchemyError: _database_away,
            **dict.fromkeys(_ANSWERS, _failure),
        },
    )
    app.state.reading = reading
    return app


class Beat:
    """The instants at which all open pages load anew, so that one reading and one rendering serve them all."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._next = 0.0
        self._spent = 0.0

    @property
    def seconds(self) -> float:
        """The seconds until the next instant; the longer the last load took, the later the next one comes."""
        now = monotonic()
        if now >= self._next:
            cost = self._reading.spent - self._spent
            self._spent = self._reading.spent
            keep = self._reading.keep.total_seconds()
            self._next = now + max(_OFTEN * keep, 0.05, min(_DUTY * cost, _SELDOM * keep))
        return self._next - now


def live(reading: Reading, authorize: Authorize | None) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that tells open pages to load anew.

    A page may send the time of its figures as ``?at=``. If there are newer figures, the page is told at once.
    """
    beat = Beat(reading)

    async def events(request: Request) -> Response:
        await access_of(request, authorize)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(
            _events(reading, beat, request.query_params.get("at")), media_type="text/event-stream", headers=headers
        )

    return events


async def _events(reading: Reading, beat: Beat, seen: str | None) -> AsyncIterator[str]:
    until = monotonic() + _LONGEST_SECONDS
    yield "retry: 3000\n\n"
    while monotonic() < until:
        try:
            figures = await reading.figures_at_hand()
        except (SQLAlchemyError, FairQueueError):
            yield ": the database does not answer\n\n"
        else:
            if figures is None:
                continue
            at = figures.at.isoformat()
            # If figures are kept for long, pages load anew even if these are the same: the reasons of waits are newer.
            if seen is not None and (at != seen or reading.figures.are_kept_longer):
                yield f"event: figures\ndata: {at}\n\n"
            seen = at
        # Beat lets all pages load at the same instants, so that they share a reading of the reasons.
        is_old = reading.figures.are_kept_longer
        await asyncio.sleep(beat.seconds if is_old else max(reading.keep.total_seconds(), 0.05))


class _Headers:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                named = {name for name, _ in message["headers"]}
                caching = {} if b"cache-control" in named else {b"cache-control": b"no-store"}
                message["headers"] = [*message["headers"], *(_HEADERS | caching).items()]
            await send(message)

        await self.app(scope, receive, with_headers if scope["type"] == "http" else send)


class _Paths:
    """Restores the path that the client requested, since the routes expect it.

    A prefix that a proxy has stripped from the path is put back if ``root_path`` still contains it. A slash that
    Litestar has added is taken off. With the slash, Starlette would redirect to an address outside of the dashboard.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path, requested = scope["path"], scope.get("raw_path")
            above = scope.get("app_root_path", "")
            stripped = above.rstrip("/")
            root = (stripped + scope.get("root_path", "").removeprefix(above)).rstrip("/")
            if stripped and not f"{path}/".startswith(f"{root}/"):
                path = stripped + path
            added = path.endswith("/") and requested and not requested.endswith(b"/")
            if added and path.strip("/") and path.rstrip("/") != root:
                path = path.rstrip("/")
            scope = {**scope, "path": path, "root_path": root}
        await self.app(scope, receive, send)


def _static(name: str, kind: str) -> Any:
    content = files("sqlalchemy_fairqueue.dashboard").joinpath("static", name).read_bytes()

    async def static(_: Request) -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "max-age=300"})

    return static


def _page(status: int, title: str, message: str) -> HTMLResponse:
    return HTMLResponse(rendered("error.html", status=status, title=title, message=message), status)


async def _refusal(_: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    titles = {403: "Not for you", 404: "Not here", 405: "Not this way"}
    return _page(status, titles.get(status, "Not possible"), str(getattr(error, "detail", error)))


async def _answered(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)  # noqa: S101 - the handler is of this class
    return error.response


async def _unread(_: Request, __: Exception) -> Response:
    return HTMLResponse(rendered("unread.html"), 202)


async def _failure(_: Request, error: Exception) -> Response:
    status, title, problem = next(answer for kind, answer in _ANSWERS.items() if isinstance(error, kind))
    if problem:
        logger.warning("%s: %s", problem, logged(error))
    return _page(status, title, str(error))


async def _database_away(_: Request, error: Exception) -> Response:
    # Only the log gets the error's text, which may name the host and the user of the database.
    logger.warning("the database does not answer the dashboard: %s: %s", type(error).__name__, logged(error))
    return _page(
        503, "The database does not answer", "The log of the dashboard says more. This page works again when it does."
    )
