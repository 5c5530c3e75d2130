"""Faces of drivers: engines and sessions of one kind, sync or async, for tests that are written once."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue

R = TypeVar("R")


class Face(ABC):
    """A driver as applications of one kind use it."""

    def __init__(self, url: URL) -> None:
        self.url = url

    @property
    @abstractmethod
    def engine(self) -> Any:
        """The engine."""

    @property
    @abstractmethod
    def sync_engine(self) -> Engine:
        """The engine, or the one within it."""

    @abstractmethod
    def run(self, work: Callable[[Session], R], **options: Any) -> R:
        """Do *work* on a session, and commit; *options* are the session's."""

    @abstractmethod
    def on_connection(self, work: Callable[[Connection], R], **options: Any) -> R:
        """Do *work* on a connection with these execution options, and commit."""

    @abstractmethod
    def call(self, queue: Queue, verb: str, *arguments: Any, **options: Any) -> Any:
        """Call a verb of a queue on the engine."""

    @abstractmethod
    def close(self) -> None:
        """Dispose of the engine."""


class SyncFace(Face):
    """Engine and Session."""

    def __init__(self, url: URL, **options: Any) -> None:
        super().__init__(url)
        self._engine = create_engine(url, **options)

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self._engine

    sync_engine = engine

    def run(self, work: Callable[[Session], R], **options: Any) -> R:
        """As for Face."""
        with Session(self._engine, **options) as session, session.begin():
            return work(session)

    def on_connection(self, work: Callable[[Connection], R], **options: Any) -> R:
        """As for Face."""
        with self._engine.connect() as connection, connection.execution_options(**options).begin():
            return work(connection)

    def call(self, queue: Queue, verb: str, *arguments: Any, **options: Any) -> Any:
        """As for Face."""
        return attrgetter(verb)(queue)(self._engine, *arguments, **options)

    def close(self) -> None:
        """As for Face."""
        self._engine.dispose()


class AsyncFace(Face):
    """AsyncEngine and AsyncSession, in a loop of the test's own."""

    def __init__(self, url: URL, **options: Any) -> None:
        super().__init__(url)
        self.runner = asyncio.Runner()
        self._engine = create_async_engine(url, **options)

    @property
    def engine(self) -> AsyncEngine:
        """The engine."""
        return self._engine

    @property
    def sync_engine(self) -> Engine:
        """The engine within it."""
        return self._engine.sync_engine

    def run(self, work: Callable[[Session], R], **options: Any) -> R:
        """As for Face."""
        return self.runner.run(self.arun(work, **options))

    async def arun(self, work: Callable[[Session], R], **options: Any) -> R:
        """As :meth:`run`, in a task of the loop."""
        async with AsyncSession(self._engine, **options) as session, session.begin():
            return await session.run_sync(work)

    def on_connection(self, work: Callable[[Connection], R], **options: Any) -> R:
        """As for Face."""

        async def running() -> R:
            async with self._engine.connect() as connection:
                isolated = await connection.execution_options(**options)
                async with isolated.begin():
                    return await isolated.run_sync(work)

        return self.runner.run(running())

    def call(self, queue: Queue, verb: str, *arguments: Any, **options: Any) -> Any:
        """As for Face."""
        return self.runner.run(attrgetter(verb)(queue)(self._engine, *arguments, **options))

    def close(self) -> None:
        """As for Face."""
        self.runner.run(self._engine.dispose())
        self.runner.close()


FACES: dict[str, tuple[str, type[SyncFace] | type[AsyncFace]]] = {
    "psycopg": ("psycopg", SyncFace),
    "psycopg async": ("psycopg", AsyncFace),
    "psycopg2": ("psycopg2", SyncFace),
    "asyncpg": ("asyncpg", AsyncFace),
}
"""The module of the driver and the face, by name."""
