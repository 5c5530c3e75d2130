"""Async engines whose creator serves the event loop alone that it was made in, as connectors of clouds do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from sqlalchemy_fairqueue import AsyncWorker, InvalidArgument, Queue
from sqlalchemy_fairqueue.errors import WorkerError
from tests.fixtures.database import Database
from tests.fixtures.drivers import async_url
from tests.worker.helpers import retimed, send

Creator = Callable[[], Awaitable[Any]]


def _refusing(connect: Creator) -> Creator:
    loop = asyncio.get_running_loop()

    async def create() -> Any:
        if asyncio.get_running_loop() is not loop:
            raise LookupError("the connector is of another loop")
        return await connect()

    return create


def _silent(connect: Creator) -> Creator:
    """In another loop nothing ever happens."""
    loop = asyncio.get_running_loop()

    async def create() -> Any:
        if asyncio.get_running_loop() is not loop:
            await asyncio.Event().wait()
        return await connect()

    return create


def _engine(database: Database, bound: Callable[[Creator], Creator]) -> AsyncEngine:
    url = async_url(database.url)

    async def connect() -> Any:
        if url.drivername.endswith("+asyncpg"):
            import asyncpg  # noqa: PLC0415 - another driver

            return await asyncpg.connect(database.conninfo)
        return await psycopg.AsyncConnection.connect(database.conninfo)

    return create_async_engine(url, async_creator=bound(connect))


async def test_it_is_told(queue: Queue, engine: Engine, database: Database) -> None:
    """A worker says why it cannot start and which argument helps; with an engine of its own it works."""
    queue.handler()(lambda _: None)
    for bound in (_refusing, _silent):
        single = _engine(database, bound)
        worker = retimed(AsyncWorker(single, queue), connect=0.1)
        said = r"async_creator serves one loop, give AsyncWorker\(worker_engine="
        with pytest.raises(WorkerError, match=said) as caught:
            await worker.start()
        assert caught.value.__cause__ is not None, bound
        send(engine, queue, 1, 2)
        helped = AsyncWorker(single, queue, worker_engine=engine)
        await helped.run(drain=True)
        assert await helped.leftovers() == ()
        await single.dispose()
    helped = AsyncWorker(
        _engine(database, _refusing), queue, worker_engine=create_async_engine(async_url(database.url))
    )
    send(engine, queue, 3)
    await helped.run(drain=True)
    assert database.value("select count(*) from fq_message") == 0


async def test_other_failures_stay(queue: Queue, database: Database) -> None:
    """An engine that cannot connect anywhere is told by its own error."""

    def nowhere(_: Creator) -> Creator:
        async def create() -> Any:
            raise LookupError("no such instance")

        return create

    queue.handler()(lambda _: None)
    with pytest.raises(LookupError, match="no such instance"):
        await AsyncWorker(_engine(database, nowhere), queue).start()
    with pytest.raises(InvalidArgument, match="worker_engine"):
        AsyncWorker(_engine(database, nowhere), queue, worker_engine="postgresql://")  # type: ignore[arg-type]
