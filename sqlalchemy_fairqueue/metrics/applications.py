"""WSGI and ASGI applications that serve the metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, make_wsgi_app
from prometheus_client.registry import Collector
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_fairqueue.errors import FairQueueError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping
    from wsgiref.types import WSGIApplication

    from prometheus_client.core import Metric

    from sqlalchemy_fairqueue.metrics.collector import QueueCollector

    Message = MutableMapping[str, Any]
    ASGIApplication = Callable[
        [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
    ]


def wsgi_application(collector: QueueCollector, *others: Collector) -> WSGIApplication:
    """Return a WSGI application that serves the metrics, for Django, Flask or a server of its own.

    Args:
        collector: Made with an Engine.
        others: More collectors to export, such as ``prometheus_client.REGISTRY``.

    Example:
        >>> app = flask.Flask("shop")
        >>> app.wsgi_app = wsgi_application(QueueCollector(engine, queue))
        >>> "fairqueue_up 1.0" in app.test_client().get("/metrics").text
        True
    """
    application: WSGIApplication = make_wsgi_app(_registry(collector, *others))
    return application


def asgi_application(collector: QueueCollector, *others: Collector) -> ASGIApplication:
    """Return an ASGI application that serves the metrics, to mount in FastAPI, Starlette or Litestar.

    Reading the database does not block the event loop: an AsyncEngine is awaited, an Engine is used in a thread.

    Args:
        collector: Made with an Engine, or with an AsyncEngine of the application's event loop.
        others: More collectors to export, such as ``prometheus_client.REGISTRY``. They are called in the event loop.

    Example:
        >>> app = Starlette(routes=[Mount("/metrics", asgi_application(QueueCollector(engine, queue)))])
        >>> [route.path for route in app.routes]
        ['/metrics']
    """

    async def metrics(
        scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the metrics answer HTTP requests, and got {scope['type']!r}")
        accepted = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
        encode, content_type = choose_encoder(accepted)
        body = encode(_registry(await _collected(collector), *others))
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return metrics


async def _live(receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


async def _collected(collector: QueueCollector) -> Collector:
    if isinstance(collector.figures.engine, Engine):
        return _Collected(await asyncio.to_thread(lambda: list(collector.collect())))
    try:
        await collector.figures.aget()
    except (SQLAlchemyError, FairQueueError) as error:
        return _Collected(collector.families(refused=error))
    return _Collected(collector.families(refused=None))


def _registry(*collectors: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return registry
