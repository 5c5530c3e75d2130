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

_OFTEN = 0.7
"""The part of *keep* after which pages have new reasons, where the figures are kept for longer than that."""
_DUTY = 30
"""Open pages are told to load anew after at least so many times as long as it takes to read and make them all."""
_SELDOM = 5
"""The most times *keep* between these instants, whatever it costs."""
_LONGEST_SECONDS = 300
"""A stream ends then, and the browser asks for another one: access is checked again."""


class Beat:
    """The instants at which all open pages load anew, so that they share what is read and made.

    Args:
        reading: What they show.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._next = 0.0
        self._spent = 0.0

    @property
    def seconds(self) -> float:
        """The time until the next one, which comes later where the pages before cost more."""
        now = monotonic()
        if now >= self._next:
            cost = self._reading.spent - self._spent
            self._spent = self._reading.spent
            keep = self._reading.keep.total_seconds()
            self._next = now + max(_OFTEN * keep, 0.05, min(_DUTY * cost, _SELDOM * keep))
        return self._next - now


def live(reading: Reading, authorize: Authorize | None) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of the events. Each says the time of the figures, and nothing else.

    The query may say in ``at`` which figures the page shows; it is empty where it shows none yet.
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
            # Older figures are shown with reasons of this moment.
            if seen is not None and (at != seen or reading.figures.are_kept_longer):
                yield f"event: figures\ndata: {at}\n\n"
            seen = at
        # Reasons are kept for a part of *keep*, so that those of all pages are of one reading, and new within *keep*.
        is_old = reading.figures.are_kept_longer
        await asyncio.sleep(beat.seconds if is_old else max(reading.keep.total_seconds(), 0.05))
