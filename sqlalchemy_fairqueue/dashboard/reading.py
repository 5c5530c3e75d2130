"""Reads of the dashboard: shared figures, and details that are kept for a moment for all viewers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_fairqueue.cli.doctor.examination import examine
from sqlalchemy_fairqueue.cli.doctor.findings import Role as Work
from sqlalchemy_fairqueue.cli.errors import CommandError
from sqlalchemy_fairqueue.database.engines import arun, run
from sqlalchemy_fairqueue.figures import SharedFigures
from sqlalchemy_fairqueue.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.cli.doctor.findings import Finding
    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine

R = TypeVar("R")

_HEALTH_KEPT = 60.0
_MOST_KEPT = 500


@dataclass(frozen=True, slots=True)
class Health:
    """The findings of doctor.

    Attributes:
        findings: What was found; the worst first.
        problem: Why nothing could be found. None: it could.
    """

    findings: Sequence[Finding]
    problem: str | None = None


class Reading:
    """The database as the dashboard reads it, so that it costs the same for one viewer and for a hundred.

    Args:
        engine: The application's engine, sync or async.
        queues: The queues. Empty: all of the installation.
        schema: The schema of the installation.
        keep: How long what was read is kept.
    """

    def __init__(
        self, engine: Engine | AsyncEngine, queues: Sequence[Queue], *, schema: str | None, keep: timedelta
    ) -> None:
        self.engine = engine
        self.schema = schema
        self.keep = keep
        self.figures: SharedFigures = SharedFigures(engine, queues or None, schema=schema, keep=keep)
        self._given = {queue.name: queue for queue in queues}
        self._kept: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}
        self._health: Health | None = None

    def queue(self, name: str) -> Queue:
        """The queue of that name: the application's own where it was given, with its codec."""
        return self._given.get(name) or Queue(name, schema=self.schema)

    async def call(
        self, work: Callable[..., R], awork: Callable[..., Awaitable[R]], *arguments: Any, **named: Any
    ) -> R:
        """Call a method of a queue on the engine, in a thread, or its awaited twin on an async one."""
        if isinstance(self.engine, Engine):
            return await asyncio.to_thread(work, self.engine, *arguments, **named)
        return await awork(self.engine, *arguments, **named)

    async def read(self, work: Callable[[Connection], R]) -> R:
        """Read from the database on a connection."""
        if isinstance(self.engine, Engine):
            return await asyncio.to_thread(run, self.engine, work)
        return await arun(self.engine, work)

    async def shared(self, key: Hashable, work: Callable[[], Awaitable[R]], seconds: float | None = None) -> R:
        """The result of *work*, kept for a moment, so that all who ask for the same cost as much as one."""
        return await asyncio.shield(self._task(key, work, seconds))

    def _task(self, key: Hashable, work: Callable[[], Awaitable[R]], seconds: float | None) -> asyncio.Task[R]:
        found = self._kept.get(key)
        if found is None or (found[1].done() and (found[0] < monotonic() or found[1].exception() is not None)):
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = self.keep.total_seconds() if seconds is None else seconds
            found = monotonic() + kept, asyncio.ensure_future(work())
            self._kept[key] = found
        return found[1]

    def forget(self) -> None:
        """Read anew when the figures are requested next: something was changed."""
        self._kept = {key: kept for key, kept in self._kept.items() if key == "health"}
        self.figures.forget()

    async def health(self) -> Health:
        """The findings of doctor, a minute old at most."""
        self._health = await self.shared("health", lambda: asyncio.to_thread(self._examine), _HEALTH_KEPT)
        return self._health

    def latest_health(self) -> Health | None:
        """The findings of doctor that are at hand, without a wait for new ones. None: there are none yet."""
        task = self._task("health", lambda: asyncio.to_thread(self._examine), _HEALTH_KEPT)
        if task.done():
            self._health = task.result()
        return self._health

    def _examine(self) -> Health:
        # Doctor waits between its samples: never in the event loop.
        own = isinstance(self.engine, Engine)
        url = self.engine.url.set(drivername="postgresql+psycopg")
        engine = self.engine if isinstance(self.engine, Engine) else create_engine(url, poolclass=NullPool)
        try:
            with engine.connect() as connected:
                connection = connected.execution_options(isolation_level="READ COMMITTED")
                found = examine(connection, self.schema, role=Work.MONITOR)
        except (CommandError, SQLAlchemyError) as error:
            return Health((), str(error))
        finally:
            if not own:
                engine.dispose()
        return Health(sorted(found.findings, key=lambda finding: -finding.level))


def seconds_ago(since: datetime | None, now: datetime) -> timedelta | None:
    """The time since then, never negative."""
    return None if since is None else max(now - since, timedelta())
