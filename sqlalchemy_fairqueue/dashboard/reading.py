"""Reads the database for the dashboard, and keeps most of what was read for a moment, for all viewers."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from sqlalchemy_fairqueue.database.engines import (
    READ_COMMITTED,
    aread_again,
    blocking,
    isolate,
    on,
    read_again,
    run,
    run_transaction,
)
from sqlalchemy_fairqueue.database.errors import refusal_of
from sqlalchemy_fairqueue.doctor.examination import examine
from sqlalchemy_fairqueue.doctor.findings import Role as Work
from sqlalchemy_fairqueue.doctor.installation import Unusable, grant, needed_kind
from sqlalchemy_fairqueue.errors import NotGranted
from sqlalchemy_fairqueue.figures.shared import DUTY, PATIENCE_SECONDS, SharedFigures
from sqlalchemy_fairqueue.queue import Queue
from sqlalchemy_fairqueue.texts import logged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
    from sqlalchemy_fairqueue.doctor.examination import Examination
    from sqlalchemy_fairqueue.doctor.findings import Finding
    from sqlalchemy_fairqueue.figures.queues import Figures

R = TypeVar("R")

_HEALTH_KEPT = 60.0
_HEALTH_DUTY = 200
_HEALTH_PATIENCE = 0.1
_MOST_KEPT = 200
_FIRST_PATIENCE = 0.2


@dataclass(frozen=True, slots=True)
class Health:
    """What ``fairqueue doctor`` finds, the worst first; if its checks could not be made, *problem* says why."""

    findings: Sequence[Finding]
    problem: str | None = None


class _Kept:
    """A result that was read or is being read; *before* is the previous result, if that took long to read."""

    def __init__(self, task: asyncio.Task[Any], before: _Kept | None) -> None:
        self.task = task
        self.before = before
        self.given_until = 0.0
        self._began = monotonic()
        self._took = 0.0
        self._good_until = 0.0

    @property
    def is_good(self) -> bool:
        return monotonic() < self._good_until

    @property
    def is_slow(self) -> bool:
        return self.given_until > 0.0 and self._took >= PATIENCE_SECONDS

    def finish(self, seconds: float, duty: float, task: asyncio.Task[Any]) -> None:
        """Keep the result for *seconds*, or for *duty* times the reading's duration if that is longer; keep no error.

        The time counts from the end of the reading. A *duty* of 0 is for results that must be fresh: their *seconds*
        count from the start of the reading, but they are kept for at least ``seconds / 4`` after its end.
        """
        self.before = None
        if task.cancelled() or task.exception() is not None:
            return
        now = monotonic()
        self._took = now - self._began
        period = max(seconds, duty * self._took) if duty else max(seconds - self._took, seconds / 4)
        self._good_until = now + period
        self.given_until = self._good_until + period


class Reading:
    """The database as the dashboard reads it.

    Attributes:
        spent: The seconds spent so far on database calls and on rendering pages; figures and health are not counted.
    """

    def __init__(
        self, engine: Engine | AsyncEngine, queues: Sequence[Queue], *, schema: str | None, keep: timedelta
    ) -> None:
        self.engine = engine
        self.schema = schema
        self.keep = keep
        self.figures: SharedFigures = SharedFigures(engine, queues or None, schema=schema, keep=keep)
        self._given = {queue.name: queue for queue in queues}
        self._kept: dict[Hashable, _Kept] = {}
        self._health: Health | None = None
        self._first: asyncio.Task[Figures] | None = None
        self.spent = 0.0

    async def figures_at_hand(self) -> Figures | None:
        """Return the figures. Wait only a moment for the first reading of them; return None if it takes longer."""
        if self.figures.latest is not None:
            with self._naming_grants():
                return await self.figures.aget()
        if self._first is None or self._first.done():
            self._first = asyncio.ensure_future(self.figures.aget())
            # Look at the task's error here, since asyncio logs an error that nobody has looked at. Whoever awaits the
            # task gets the error all the same.
            self._first.add_done_callback(lambda task: task.cancelled() or task.exception())
        reading = self._first
        await asyncio.wait([reading], timeout=_FIRST_PATIENCE)
        with self._naming_grants():
            return reading.result() if reading.done() else None

    def queue(self, name: str) -> Queue:
        return self._given.get(name) or Queue(name, schema=self.schema)

    async def call(self, verb: Callable[..., R], *arguments: Any, **named: Any) -> R:
        with self.spending(), self._naming_grants():
            if isinstance(self.engine, Engine):
                return await asyncio.to_thread(verb, self.engine, *arguments, **named)
            return await cast("Awaitable[R]", verb(self.engine, *arguments, **named))

    async def act(self, work: Callable[[Connection], R]) -> R:
        return await self.call(on, partial(run_transaction, work=work))

    async def read(self, verb: Callable[..., R], *arguments: Any, **named: Any) -> R:
        """Call a function that reads on a connection; a connection that the server has ended is replaced."""
        work = partial(run, work=lambda connection: verb(connection, *arguments, **named))
        return await aread_again(lambda: self.call(on, work))

    async def kept(
        self, key: Hashable, verb: Callable[..., R], *arguments: Any, seconds: float | None = None, **named: Any
    ) -> R:
        return await self.shared(key, lambda: self.read(verb, *arguments, **named), seconds)

    @contextmanager
    def _naming_grants(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            if (kind := needed_kind(error)) is None:
                raise
            denied, role = refusal_of(error).message, self.engine.url.username or ""
            raise NotGranted(f"{denied}; put {grant(role, kind, self.schema)} in a migration") from error

    @contextmanager
    def spending(self) -> Iterator[None]:
        began = monotonic()
        try:
            yield
        finally:
            self.spent += monotonic() - began

    async def shared(
        self,
        key: Hashable,
        work: Callable[[], Awaitable[R]],
        seconds: float | None = None,
        duty: float = DUTY,
        *,
        always: bool = False,
    ) -> R:
        """Return the result of *work*, and keep it for a moment, so that all viewers together cost as much as one.

        If the work takes long, its result is kept for longer, and still returned while the work is done again.

        Args:
            seconds: How long the result is kept. None: the *keep* of the dashboard.
            duty: The result is kept for at least this many times as long as the work took.
            always: Whether results must always be fresh. If so, *duty* is ignored, and a result is kept for at most
                *seconds* and not returned while the work is done again. Only for readings of a bounded part of a queue.
        """
        kept = self._kept_or_read(key, work, seconds, duty, always=always)
        before = kept.before
        if not kept.task.done() and before is not None and monotonic() < before.given_until:
            return cast("R", before.task.result())
        return cast("R", await asyncio.shield(kept.task))

    def is_at_hand(self, key: Hashable) -> bool:
        found = self._kept.get(key)
        return found is not None and (not found.task.done() or found.is_good)

    def _kept_or_read(
        self,
        key: Hashable,
        work: Callable[[], Awaitable[Any]],
        seconds: float | None,
        duty: float,
        *,
        always: bool = False,
    ) -> _Kept:
        if self.is_at_hand(key):
            return self._kept[key]
        found = self._kept.get(key)
        if len(self._kept) >= _MOST_KEPT:
            self._kept = {one: kept for one, kept in self._kept.items() if not kept.task.done() or kept.is_good}
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        before = found if found is not None and found.is_slow and not always else None
        kept = _Kept(asyncio.ensure_future(work()), before)
        period = self.keep.total_seconds() if seconds is None else seconds
        kept.task.add_done_callback(partial(kept.finish, period, 0 if always else duty))
        self._kept[key] = kept
        return kept

    def forget(self) -> None:
        """Forget what was read, so that pages show a change just made. Keep the findings of doctor, which take long."""
        self._kept = {key: kept for key, kept in self._kept.items() if key == "health"}
        self.figures.forget()

    async def health(self) -> Health | None:
        await asyncio.wait([asyncio.ensure_future(self.shared(*self._examination))], timeout=_HEALTH_PATIENCE)
        return self.latest_health()

    def latest_health(self) -> Health | None:
        """Return the latest findings of doctor without waiting for new ones; None if there are none yet."""
        task = self._kept_or_read(*self._examination).task
        if task.done():
            self._health = task.result()
        return self._health

    @property
    def _examination(self) -> tuple[str, Callable[[], Awaitable[Health]], float, float]:
        return "health", lambda: asyncio.to_thread(self._examine), _HEALTH_KEPT, _HEALTH_DUTY

    def _examine(self) -> Health:
        # Doctor sleeps between its samples, so it must not run in the event loop.
        engine = self.engine if isinstance(self.engine, Engine) else blocking(self.engine)

        def read() -> Examination:
            with engine.connect() as connected:
                return examine(isolate(connected, READ_COMMITTED), self.schema, role=Work.MONITOR)

        try:
            found = read_again(read)
        except (Unusable, SQLAlchemyError, OSError) as error:
            return Health((), logged(error))
        return Health(sorted(found.findings, key=lambda finding: -finding.level))
