"""Handlers' sessions that get no connection."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Worker
from tests.fixtures.database import Database
from tests.worker.helpers import auntil, is_empty, send, until

_ONE = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.01}


@pytest.fixture
def narrow(database: Database) -> Iterator[Engine]:
    """An engine whose pool has one connection, and no patience."""
    engine = create_engine(database.url, **_ONE)
    yield engine
    engine.dispose()


def _asks(session: Session) -> None:
    session.execute(text("select 1"))


def _asks_nothing(_: Session) -> None: ...


@pytest.mark.parametrize("work", [_asks, _asks_nothing])
def test_no_connection_is_no_attempt(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    narrow: Engine,
    database: Database,
    caplog: pytest.LogCaptureFixture,
    work: Callable[[Session], None],
) -> None:
    """A message for whose session no connection could be had is given back uncounted, and done when there is one."""

    @queue.handler()
    def handle(_: Delivery, session: Session) -> None:
        work(session)

    send(engine, queue, 1, max_attempts=1)
    with (
        caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"),
        Worker(narrow, queue, concurrency=1) as worker,
    ):
        with narrow.connect():
            until(lambda: worker.stats.released >= 3, "it is given back again and again")
        until(lambda: is_empty(database), "it is done")
    assert worker.stats.completed == 1
    said = [record.getMessage() for record in caplog.records]
    assert len([one for one in said if "cannot get a connection for a handler's session" in one]) == 1, said


async def test_no_connection_in_asyncio(queue: Queue, engine: Engine, database: Database) -> None:
    """The same in asyncio."""

    @queue.handler()
    async def handle(_: Delivery, session: AsyncSession) -> None:
        await session.execute(text("select 1"))

    narrow = create_async_engine(database.url, **_ONE)
    send(engine, queue, 1, max_attempts=1)
    async with AsyncWorker(narrow, queue, concurrency=1) as worker:
        async with narrow.connect():
            await auntil(lambda: worker.stats.released >= 3, "it is given back again and again")
        await auntil(lambda: is_empty(database), "it is done")
    assert worker.stats.completed == 1
    await narrow.dispose()


def test_a_pause_ends_at_a_stop(queue: Queue, engine: Engine, narrow: Engine, database: Database) -> None:
    """A worker whose handlers wait for a connection gives back what they have at its stop."""
    queue.handler()(lambda _, session: _asks(session))
    send(engine, queue, 1)
    with narrow.connect():
        with Worker(narrow, queue, concurrency=1) as worker:
            until(lambda: worker.stats.released >= 3, "it waits")
        assert database.value("select attempts from fq_message where lease_id is null") == 0


def test_another_pool_is_the_handler_s(queue: Queue, engine: Engine, narrow: Engine, database: Database) -> None:
    """A pool of the application's own that has no connection for its handler fails the attempt."""

    @queue.handler()
    def handle(_: Delivery, session: Session) -> None:
        _asks(session)
        with Session(narrow) as other:
            _asks(other)

    send(engine, queue, 1, max_attempts=1)
    with narrow.connect(), Worker(engine, queue):
        until(lambda: is_empty(database), "it is a dead letter")
    assert PoolTimeoutError.__name__ in database.value("select error from fq_dead_letter")


def _session(_: Delivery, session: Session) -> None: ...


async def _async_session(_: Delivery, session: AsyncSession) -> None: ...


def _none(_: Delivery) -> None: ...


@pytest.mark.parametrize(
    ("pool", "handler", "warnings"),
    [
        ({"pool_size": 3, "max_overflow": 0}, _session, 1),
        ({"pool_size": 2, "max_overflow": 2}, _session, 0),
        ({"pool_size": 1, "max_overflow": -1}, _session, 0),
        ({"pool_size": 0, "max_overflow": 0}, _session, 0),
        ({"poolclass": NullPool}, _session, 0),
        ({"pool_size": 3, "max_overflow": 0}, _none, 0),
    ],
)
def test_a_narrow_pool_is_said(  # noqa: PLR0917 - fixtures
    queue: Queue,
    database: Database,
    caplog: pytest.LogCaptureFixture,
    pool: dict[str, Any],
    handler: Callable[..., Any],
    warnings: int,
) -> None:
    """A worker whose handlers' sessions may want more connections than their pool has says so at its start."""
    queue.handler()(handler)
    narrow = create_engine(database.url, **pool)
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"), Worker(narrow, queue, concurrency=4):
        pass
    assert caplog.text.count("has 3 connection(s)") == warnings
    narrow.dispose()


async def test_a_narrow_pool_is_said_in_asyncio(
    queue: Queue, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The same in asyncio."""
    queue.handler()(_async_session)
    narrow = create_async_engine(database.url, **_ONE)
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        async with AsyncWorker(narrow, queue, concurrency=4):
            pass
    assert "create the engine with pool_size=4, or give the worker concurrency=1" in caplog.text
    await narrow.dispose()
