"""Faces of drivers under the machine: engines, sessions and queues that its rules call without awaiting.

On an async driver each call runs in one event loop until it is answered: the rules are the same, and so are programs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, AsyncSessionTransaction, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from sqlalchemy_fairqueue.queue.base import Facet
from sqlalchemy_fairqueue.queue.consumer import Consumer


def libpq_options(settings: dict[str, str]) -> str:
    """Settings of a connection, as drivers with libpq take them."""
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


class SyncFace:
    """Engine, Session, Queue."""

    def __init__(self, driver: str) -> None:
        self._driver = driver

    def engine(self, url: URL, settings: dict[str, str]) -> Engine:
        """An engine whose connections have these settings."""
        options = {"options": libpq_options(settings)}
        return create_engine(url.set(drivername=f"postgresql+{self._driver}"), pool_size=12, connect_args=options)

    def session(self, engine: Engine) -> Session:
        """A session on an engine."""
        return Session(engine)

    def queue(self, name: str, defaults: ChannelPolicy | None) -> Queue:
        """A queue, whose verbs take what this face made."""
        return Queue(name, defaults=defaults)

    def close(self) -> None:
        """End what is left when the engines are disposed of."""


class AsyncFace:
    """AsyncEngine, AsyncSession, and the verbs of Queue that are awaited; on asyncpg."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def _run(self, awaitable: Awaitable[Any]) -> Any:
        async def waiting() -> Any:
            return await awaitable

        return self._runner.run(waiting())

    def engine(self, url: URL, settings: dict[str, str]) -> "Awaited":
        """As of SyncFace."""
        arguments = {"server_settings": settings}
        made = create_async_engine(url.set(drivername="postgresql+asyncpg"), pool_size=12, connect_args=arguments)
        return AwaitedEngine(made, self._run)

    def session(self, engine: "Awaited") -> "Awaited":
        """As of SyncFace."""
        return Awaited(AsyncSession(engine.own), self._run)

    def queue(self, name: str, defaults: ChannelPolicy | None) -> "Awaited":
        """As of SyncFace."""
        return Awaited(Queue(name, defaults=defaults), self._run)

    def close(self) -> None:
        """As of SyncFace."""
        self._runner.close()


class Awaited:
    """An object whose coroutines are run in the loop, and so are those of what it gives. ``own``: that object."""

    def __init__(self, own: Any, run: Callable[[Awaitable[Any]], Any]) -> None:
        self.own = own
        self._run = run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.own, name)
        if isinstance(found, Facet):
            return Awaited(found, self._run)

        def call(*arguments: Any, **how: Any) -> Any:
            answer = found(*map(own, arguments), **how)
            # A connection, a transaction or a savepoint begins when it is awaited.
            if asyncio.iscoroutine(answer) or name in {"connect", "begin", "begin_nested"}:
                answer = self._run(answer)
            wrapped = isinstance(answer, AsyncConnection | AsyncSessionTransaction)
            return Awaited(answer, self._run) if wrapped else answer

        return call


class AwaitedEngine(Awaited):
    """An AsyncEngine."""

    @contextmanager
    def begin(self) -> Iterator[Any]:
        """A connection in a transaction that is committed at the end."""
        connection = self.connect()
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()


def own(one: Any) -> Any:
    """What a face has made, without the face."""
    return one.own if isinstance(one, Awaited) else one


def sync_engine(engine: Any) -> Engine:
    """The engine, or the one within it."""
    found: Engine = getattr(own(engine), "sync_engine", own(engine))
    return found


def consumer(queue: Any, engine: Any) -> Consumer:
    """What the queue remembers as a consumer on an engine."""
    found: Consumer = own(queue)._consumer(sync_engine(engine))
    return found
