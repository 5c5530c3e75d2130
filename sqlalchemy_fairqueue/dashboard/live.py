"""Server-sent events: a note to open pages when there are new figures."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import StreamingResponse

from sqlalchemy_fairqueue.dashboard.access import access_of
from sqlalchemy_fairqueue.errors import FairQueueError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from sqlalchemy_fairqueue.dashboard.access import Authorize
    from sqlalchemy_fairqueue.dashboard.reading import Reading

_LONGEST_SECONDS = 300
"""A stream ends then, and the browser asks for another one: access is checked again."""


def live(reading: Reading, authorize: Authorize | None) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of the events. Each says the time of the figures, and nothing else."""

    async def events(request: Request) -> Response:
        await access_of(request, authorize)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_events(reading), media_type="text/event-stream", headers=headers)

    return events


async def _events(reading: Reading) -> AsyncIterator[str]:
    until = monotonic() + _LONGEST_SECONDS
    seen = None
    while monotonic() < until:
        try:
            figures = await reading.figures.aget()
        except (SQLAlchemyError, FairQueueError):
            yield ": the database does not answer\n\n"
        else:
            if seen is None:
                yield "retry: 3000\n\n"
            elif figures.at != seen:
                yield f"event: figures\ndata: {figures.at.isoformat()}\n\n"
            seen = figures.at
        await asyncio.sleep(max(reading.keep.total_seconds(), 0.05))
