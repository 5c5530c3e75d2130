"""Shared figures: one reading of the database for all viewers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.database.engines import REPEATABLE_READ, aread_again, isolate, on, read_again, refused
from sqlalchemy_fairqueue.figures.queues import behind, read_figures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import datetime

    from sqlalchemy_fairqueue.figures.queues import Figures
    from sqlalchemy_fairqueue.queue import Queue

DUTY = 60
"""Figures are kept for at least this many times the duration of their reading, to bound the load of the database."""
LATELY = timedelta(minutes=5)
"""The longest time between readings in which completions count; twice the time of keeping figures if that is longer."""
PATIENCE_SECONDS = 0.05
"""A reading in an event loop runs in the background only if the reading before took at least this long."""


@dataclass(frozen=True, slots=True)
class Point:
    """A queue at a past instant. *behind* is the wait of its oldest ready message, or zero if none was deliverable."""

    at: datetime
    backlog: int
    behind: timedelta


class SharedFigures:
    """The figures of an installation. The first caller that asks reads them, and they are kept for a while for others.

    Nothing is read while nobody asks. While one caller reads, others get the previous figures, if any. If the last
    reading took long, :meth:`aget` starts the next reading in the background and returns the previous figures at once.
    If nobody has asked for a while, :meth:`aget` waits for the reading that it starts. It also does so after
    :meth:`forget`.

    Args:
        engine: An Engine for :meth:`get` and :meth:`aget`, or an AsyncEngine for :meth:`aget` in one event loop.
        queues: Default: all of the installation.
        keep: How long figures are kept, but at least 60 times as long as their reading took.
        points: How many figures of the past are kept for each queue.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        queues: Iterable[Queue] | None = None,
        *,
        schema: str | None = None,
        keep: timedelta = timedelta(seconds=2),
        points: int = 150,
    ) -> None:
        given: object = engine
        if not isinstance(given, (Engine, AsyncEngine)):
            raise refused(given, "an Engine or an AsyncEngine")
        self.engine = engine
        self.schema = schema
        self._queues: Sequence[Queue] | None = None if queues is None else tuple(queues)
        self._keep = keep.total_seconds()
        self._points = points
        self._past: dict[str, deque[Point]] = {}
        self._latest: Figures | None = None
        self._completed: Counter[str] = Counter()
        self._took = 0.0
        self._good_until = 0.0
        self._given_until = 0.0
        self._forgotten = 0
        self._background: asyncio.Task[object] | None = None
        self._lock = Lock()

    @property
    def latest(self) -> Figures | None:
        return self._latest

    def past(self, queue: str) -> Sequence[Point]:
        """Return a point for each of the last readings of a queue, the oldest first."""
        return tuple(self._past.get(queue, ()))

    def forget(self) -> None:
        """Make the next call of :meth:`get` or :meth:`aget` read anew.

        If a reading is under way now, calls get the previous figures, if any, until the reading ends. The first call
        after that reads anew.
        """
        # The figures of a reading under way are not kept for later calls either, since they may lack the change.
        self._forgotten += 1
        self._good_until = self._given_until = 0.0

    def completed(self, queue: str) -> int:
        """Return how many completed attempts of a queue all readings so far have counted together.

        Attempts that completed between two readings are not counted if the readings are over ``LATELY`` apart.
        """
        return self._completed[queue]

    @property
    def are_kept_longer(self) -> bool:
        return self._period > self._keep

    @property
    def _period(self) -> float:
        return max(self._keep, DUTY * self._took)

    @property
    def took(self) -> timedelta:
        return timedelta(seconds=self._took)

    def get(self) -> Figures:
        """Return the figures; read them now if those at hand are too old and no other thread is reading.

        Raises:
            TypeError: The engine is an AsyncEngine; await aget.
            SQLAlchemyError: The database does not answer, or the role may not execute the functions.
            FairQueueError: fairqueue is not installed, or the role's grant does not include a queue.
        """
        engine = self.engine
        if not isinstance(engine, Engine):
            raise TypeError(f"get was called on figures of {type(engine).__name__}; await aget")
        if (figures := self._fresh()) is not None:
            return figures
        latest = self._latest
        if not self._lock.acquire(blocking=latest is None) and latest is not None:
            return latest
        try:
            if (figures := self._fresh()) is not None:
                return figures
            began, forgotten = monotonic(), self._forgotten
            return self._take(read_again(lambda: self._read(engine)), began, forgotten)
        finally:
            self._lock.release()

    async def aget(self) -> Figures:
        if (figures := self._fresh()) is not None:
            return figures
        latest = self._latest
        if latest is None or self._took < PATIENCE_SECONDS or monotonic() >= self._given_until:
            return await self._aread()
        if self._background is None or self._background.done():
            self._background = asyncio.ensure_future(self._aread())
            # Retrieve an error of the reading, so that asyncio does not log it. If it lasts, a later caller gets it.
            self._background.add_done_callback(lambda task: task.cancelled() or task.exception())
        return latest

    async def _aread(self) -> Figures:
        engine = self.engine
        if isinstance(engine, Engine):
            return await asyncio.to_thread(self.get)
        while (figures := self._fresh()) is None:
            if self._lock.acquire(blocking=False):
                try:
                    began, forgotten = monotonic(), self._forgotten
                    reading: Callable[[], Awaitable[Figures]] = partial(on, engine, self._read)  # type: ignore[assignment]
                    return self._take(await aread_again(reading), began, forgotten)
                finally:
                    self._lock.release()
            if self._latest is not None:
                return self._latest
            await asyncio.sleep(0.01)
        return figures

    def _read(self, engine: Engine) -> Figures:
        longest = max(LATELY, timedelta(seconds=2 * self._period))
        with engine.connect() as connected:
            connection = isolate(connected, REPEATABLE_READ)
            figures = read_figures(connection, self.schema, self._queues, self._latest, longest)
            connection.rollback()
            return figures

    def _fresh(self) -> Figures | None:
        return self._latest if monotonic() < self._good_until else None

    def _take(self, figures: Figures, began: float, forgotten: int) -> Figures:
        self._took = monotonic() - began
        for name, queue in figures.queues.items():
            self._completed[name] += queue.completed or 0
            past = self._past.setdefault(name, deque(maxlen=self._points))
            past.append(Point(figures.at, queue.backlog, behind(queue.stats, figures.at)))
        for gone in self._past.keys() - figures.queues.keys():
            del self._past[gone]
        self._latest = figures
        if self._forgotten == forgotten:
            self._good_until = monotonic() + self._period
            self._given_until = self._good_until + self._period
        return figures
