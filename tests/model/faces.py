"""Faces of drivers under the machine: engines, sessions and queues that its rules call without awaiting.

On an async driver each call runs in one event loop until it is answered: the rules are the same, and so are programs.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from sqlalchemy_fairqueue.queue.base import Facet
from sqlalchemy_fairqueue.queue.consumer import Consumer
from tests.fixtures.drivers import ASYNC, SYNC

R = TypeVar("R")


def libpq_options(settings: dict[str, str]) -> str:
    """Settings of a connection, as drivers with libpq take them."""
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


class Face(ABC):
    """What the machine makes on a driver."""

    @abstractmethod
    def engine(self, url: URL, settings: dict[str, str]) -> Any:
        """An engine whose connections have these settings."""

    @abstractmethod
    def session(self, engine: Any) -> Any:
        """A session on an engine."""

    @abstractmethod
    def queue(self, name: str) -> Any:
        """A queue, whose verbs take what this face made."""

    @abstractmethod
    def sync_engine(self, engine: Any) -> Engine:
        """The engine, or the one within it."""

    @abstractmethod
    def consumer(self, queue: Any, engine: Any) -> Consumer:
        """What the queue remembers as a consumer on an engine."""

    @abstractmethod
    def close(self) -> None:
        """End what is left when the engines are disposed of."""


class SyncFace(Face):
    """Engine, Session, Queue."""

    def __init__(self, driver: str) -> None:
        self._driver = driver

    def engine(self, url: URL, settings: dict[str, str]) -> Engine:
        """As for Face."""
        options = {"options": libpq_options(settings)}
        return create_engine(url.set(drivername=f"postgresql+{self._driver}"), pool_size=12, connect_args=options)

    def session(self, engine: Engine) -> Session:
        """As for Face."""
        return Session(engine)

    def queue(self, name: str) -> Queue:
        """As for Face."""
        return Queue(name)

    def sync_engine(self, engine: Engine) -> Engine:
        """As for Face."""
        return engine

    def consumer(self, queue: Queue, engine: Engine) -> Consumer:
        """As for Face."""
        return queue._consumer(engine)

    def close(self) -> None:
        """As for Face."""


class AsyncFace(Face):
    """AsyncEngine, AsyncSession, and the verbs of Queue that are awaited; on asyncpg."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, awaitable: Awaitable[R]) -> R:
        """Wait for it in the loop."""

        async def waiting() -> R:
            return await awaitable

        work: Coroutine[Any, Any, R] = waiting()
        return self._runner.run(work)

    def engine(self, url: URL, settings: dict[str, str]) -> "AwaitedEngine":
        """As for Face."""
        made = create_async_engine(
            url.set(drivername="postgresql+asyncpg"), pool_size=12, connect_args={"server_settings": settings}
        )
        return AwaitedEngine(made, self.run)

    def session(self, engine: "AwaitedEngine") -> "AwaitedSession":
        """As for Face."""
        return AwaitedSession(AsyncSession(engine.own), self.run)

    def queue(self, name: str) -> "AwaitedQueue":
        """As for Face."""
        return AwaitedQueue(Queue(name), self.run)

    def sync_engine(self, engine: "AwaitedEngine") -> Engine:
        """As for Face."""
        return engine.own.sync_engine

    def consumer(self, queue: "AwaitedQueue", engine: "AwaitedEngine") -> Consumer:
        """As for Face."""
        consumer: Consumer = queue.own._consumer(engine.own.sync_engine)
        return consumer

    def close(self) -> None:
        """As for Face."""
        self._runner.close()


_Run = Callable[[Awaitable[Any]], Any]


class Awaited:
    """An object whose methods are awaited in the loop. ``own``: that object."""

    def __init__(self, own: Any, run: _Run) -> None:
        self.own = own
        self._run = run

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._run(getattr(self.own, name)(*arguments))


class AwaitedConnection(Awaited):
    """An AsyncConnection, or a transaction of one or of a session."""

    def execute(self, *arguments: Any) -> Any:
        """Execute a statement."""
        return self._call("execute", *arguments)

    def commit(self) -> None:
        """Commit, or release a savepoint."""
        self._call("commit")

    def rollback(self) -> None:
        """Roll back."""
        self._call("rollback")


class AwaitedEngine(Awaited):
    """An AsyncEngine."""

    own: AsyncEngine

    @contextmanager
    def begin(self) -> Iterator[AwaitedConnection]:
        """A connection in a transaction that is committed at the end."""
        connection = self._run(self.own.connect())
        try:
            yield AwaitedConnection(connection, self._run)
            self._run(connection.commit())
        finally:
            self._run(connection.close())

    def dispose(self) -> None:
        """Close its connections."""
        self._call("dispose")


class AwaitedSession(Awaited):
    """An AsyncSession."""

    own: AsyncSession

    def begin(self) -> None:
        """Begin a transaction."""
        self._call("begin")

    def begin_nested(self) -> None:
        """Begin a savepoint."""
        self._call("begin_nested")

    def commit(self) -> None:
        """Commit the transaction."""
        self._call("commit")

    def rollback(self) -> None:
        """Roll the transaction back."""
        self._call("rollback")

    def close(self) -> None:
        """Give the connection back."""
        self._call("close")

    def connection(self) -> AwaitedConnection:
        """The connection of the transaction."""
        return AwaitedConnection(self._call("connection"), self._run)

    def in_transaction(self) -> bool:
        """Whether a transaction has begun."""
        return self.own.in_transaction()

    def get_nested_transaction(self) -> AwaitedConnection | None:
        """The innermost savepoint."""
        found = self.own.get_nested_transaction()
        return None if found is None else AwaitedConnection(found, self._run)


class AwaitedQueue:
    """A queue, or a facet of one, whose coroutines are run."""

    def __init__(self, own: Any, run: _Run) -> None:
        self.own = own
        self._run = run

    @property
    def defaults(self) -> Any:
        """The policy that the application brings."""
        return self.own.defaults

    @defaults.setter
    def defaults(self, policy: ChannelPolicy) -> None:
        self.own.defaults = policy

    def __getattr__(self, verb: str) -> Any:
        if isinstance(facet := getattr(self.own, verb), Facet):
            return AwaitedQueue(facet, self._run)

        def call(where: Awaited, *arguments: Any, **how: Any) -> Any:
            answer = getattr(self.own, verb)(where.own, *arguments, **how)
            return self._run(answer) if asyncio.iscoroutine(answer) else answer

        return call


def face_of(driver: str) -> Face:
    """The face of a driver."""
    if driver in SYNC:
        return SyncFace(driver)
    assert driver in ASYNC
    return AsyncFace()
