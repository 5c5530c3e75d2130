"""Faces of drivers: engines and sessions of one kind, sync or async, for tests that are written once."""

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue

R = TypeVar("R")
PREPARED = 8
"""Calls after which psycopg has prepared a statement, which then goes to libpq: it does so after five."""


class SyncFace:
    """A driver as applications use it with Engine and Session."""

    def __init__(self, url: URL, **options: Any) -> None:
        self.url = url
        self.engine: Any = create_engine(url, **options)
        self.sync_engine: Engine = self.engine

    def run(self, work: Callable[[Session], R], **options: Any) -> R:
        """Do *work* on a session, and commit; *options* are the session's."""
        with Session(self.engine, **options) as session, session.begin():
            return work(session)

    def on_connection(self, work: Callable[[Connection], R], **options: Any) -> R:
        """Do *work* on a connection with these execution options, and commit."""
        with self.sync_engine.connect() as connection, connection.execution_options(**options).begin():
            return work(connection)

    def call(self, queue: Queue, verb: str, *arguments: Any, **options: Any) -> Any:
        """Call a verb of a queue on the engine."""
        return attrgetter(verb)(queue)(self.engine, *arguments, **options)

    def close(self) -> None:
        """Dispose of the engine."""
        self.engine.dispose()


class AsyncFace:
    """The same with AsyncEngine and AsyncSession, in a loop of the test's own."""

    def __init__(self, url: URL, **options: Any) -> None:
        self.url = url
        self.runner = asyncio.Runner()
        self.engine: Any = create_async_engine(url, **options)
        self.sync_engine: Engine = self.engine.sync_engine

    def run(self, work: Callable[[Session], R], **options: Any) -> R:
        """As of SyncFace."""
        return self.runner.run(self.arun(work, **options))

    async def arun(self, work: Callable[[Session], R], **options: Any) -> R:
        """As :meth:`run`, in a task of the loop."""
        async with AsyncSession(self.engine, **options) as session, session.begin():
            return await session.run_sync(work)

    def on_connection(self, work: Callable[[Connection], R], **options: Any) -> R:
        """As of SyncFace."""

        async def running() -> R:
            connection: AsyncConnection
            async with self.engine.connect() as connection:
                isolated = await connection.execution_options(**options)
                async with isolated.begin():
                    return await isolated.run_sync(work)

        return self.runner.run(running())

    def call(self, queue: Queue, verb: str, *arguments: Any, **options: Any) -> Any:
        """As of SyncFace."""
        return self.runner.run(attrgetter(verb)(queue)(self.engine, *arguments, **options))

    def close(self) -> None:
        """As of SyncFace."""
        self.runner.run(self.engine.dispose())
        self.runner.close()


Face = SyncFace | AsyncFace
FACES: dict[str, tuple[str, type[Face]]] = {
    "psycopg": ("psycopg", SyncFace),
    "psycopg async": ("psycopg", AsyncFace),
    "psycopg2": ("psycopg2", SyncFace),
    "asyncpg": ("asyncpg", AsyncFace),
}
"""The module of the driver and the face, by name."""
