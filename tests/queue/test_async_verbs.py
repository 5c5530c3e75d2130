"""Every verb does on an async engine what it does on a sync one."""

import asyncio
import re
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from sqlalchemy_fairqueue import Queue
from tests.fixtures.database import Database, MakeDatabase
from tests.fixtures.drivers import sync_url
from tests.queue.verbs import call, perform, steps_of, verbs


def _told(value: Any) -> Any:
    """An answer without what differs from one database, process or moment to another."""
    if isinstance(value, (datetime, timedelta, UUID)):
        return type(value)
    if isinstance(value, (list, tuple)):
        return [_told(one) for one in value]
    if isinstance(value, dict):
        return {name: _told(one) for name, one in value.items()}
    if is_dataclass(value):
        # counts: of handlers by how long they took.
        left_out = {"consumer", "lease", "host", "process", "counts"}
        names = [field.name for field in fields(value) if field.name not in left_out]
        return {name: _told(getattr(value, name)) for name in names}
    if isinstance(value, str):
        return re.sub(r"toast value \d+", "", value)
    return value if isinstance(value, (int, float, bytes, type(None))) else type(value)


async def test_the_answers_are_the_same(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, make_database: MakeDatabase
) -> None:
    """The same calls, on databases that are alike, get the same answers."""
    other = make_database()
    plain = create_engine(sync_url(other.url))
    answered = [(verb, _told(answer)) for verb, answer in perform(queue, plain, other)]
    plain.dispose()
    assert {verb for verb, _ in answered} == verbs()
    awaited, answer = Queue(queue.name), None
    steps = steps_of(awaited, engine, database)
    for expected in answered:
        verb, *arguments = steps.send(answer)
        answer = await call(awaited, verb, async_engine, *arguments)
        assert (verb, _told(answer)) == expected


async def test_a_cancelled_call_leaves_its_connection_as_it_was(queue: Queue, database: Database) -> None:
    """The next transaction on it can be rolled back."""
    engine = create_async_engine(database.url, pool_size=1, max_overflow=0)
    await queue.stats(engine)
    database.execute("create table written (id integer)")
    for called in queue.enqueue(engine, channel="a", payload=1), queue.stats(engine), queue.dequeue(engine):
        # psycopg gives up control between two steps if its last wait was some milliseconds ago.
        database.execute("select pg_sleep(0.01)")
        task = asyncio.ensure_future(called)
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        async with AsyncSession(engine) as session:
            await session.execute(text("insert into written values (1)"))
            await session.rollback()
        assert database.value("select count(*) from written") == 0
    await engine.dispose()


def test_an_engine_that_reads_json_in_its_own_way(queue: Queue, database: Database) -> None:
    """Policies are read as they are written."""
    engine = create_engine(database.url, json_deserializer=lambda _: None)
    queue.plans.configure(engine, "gold", weight=3)
    queue.configure_channel(engine, "a", weight=2)
    assert [one.policy.weight for one in queue.channels(engine)] == [2]
    assert [one.policy.weight for one in queue.plans.list(engine)] == [3]
    engine.dispose()
