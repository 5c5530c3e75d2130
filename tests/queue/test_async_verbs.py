"""Every verb does on an async engine what it does on a sync one."""

import asyncio
import re
from collections.abc import Generator
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue
from tests.fixtures.database import Database, MakeDatabase
from tests.fixtures.drivers import sync_url
from tests.queue.damage import lose
from tests.queue.verbs import verbs as every_verb

_DAY = timedelta(days=1)
Steps = Generator[tuple[Any, ...], Any, None]


def _steps(queue: Queue, engine: Engine, database: Database) -> Steps:
    """Calls of all verbs, each with what it takes besides the engine; their answers come back."""
    yield from _configuration()
    yield from _messages(database)
    with Session(engine) as session, session.begin(), queue.group(session) as group:
        group.enqueue_many([Enqueue(channel="a", payload=0)])
    yield "groups.status", group.id
    yield "groups.list", {"is_open": True}
    yield "groups.cancel", group.id
    yield from _schedules()
    for verb in ("stats", "channels", "admin.consumers", "admin.contention"):
        yield (verb,)
    yield "channels", {"busy": True}
    yield "admin.stop_worker", "nobody"
    yield "admin.erase", "c"
    yield "plans.list", "gold"
    yield "limits.list", "api"
    yield "configure", {"limits": None, "default_plan": None}
    yield "limits.remove", "api"
    for name in (one.channel for one in queue.channels(engine)):
        yield "configure_channel", name, {"plan": None, "reset": "all"}
    yield "plans.remove", "gold"
    yield ("plans.list",)


def _configuration() -> Steps:
    yield "configure", {"history": True, "result_retention": _DAY, "max_concurrency": 50, "fair_by": "cost"}
    yield "limits.configure", "api", {"max_concurrency": 90}
    yield "configure", {"limits": ["api"]}
    yield "plans.configure", "gold", {"weight": 2, "max_backlog": 90}
    yield "configure", {"default_plan": "gold", "dead_letter_retention": {"odd": _DAY}}
    yield "configure_channel", "b", {"plan": "gold", "max_backlog": None}
    yield "configure_channel", "c", ChannelPolicy(max_concurrency=40)
    yield "pause", "new", {"new": True}
    yield ("pause",)
    yield ("resume",)


def _messages(database: Database) -> Steps:
    first = yield "enqueue", {"channel": "a", "payload": 1, "key": "k", "unique_for": _DAY}
    yield "enqueue", {"channel": "a", "payload": 1, "key": "k", "unique_for": _DAY}
    many = yield "enqueue_many", [Enqueue(channel=name, payload=name, cost=9, kind="odd") for name in "aabbccddee"]
    later, lost, *_ = yield "enqueue_many", [Enqueue(channel="f", payload=n, delay=_DAY) for n in range(3)]
    yield "message", first.message_id
    yield "message", {"channel": "a", "key": "k"}
    yield "messages", {"channel": "b"}
    one, two, three, four, five, six, *_ = yield "dequeue", {"limit": 7, "lease": _DAY, "max_bytes": 10**6}
    yield "extend", [one, two], {"lease": 2 * _DAY}
    yield "complete", one, {"cost": 4, "result": {"x": [1]}}
    yield "result", one.message_id, {"channel": one.channel, "timeout": _DAY}
    yield "retry", two, {"delay": _DAY, "error": "no page", "cost": 2}
    yield "release", three, {"delay": _DAY}
    yield "bury", [four, five, six], {"reason": "no good", "error": "no ink"}
    yield "dead_letters.list", {"error": "ink", "limit": 2}
    yield "dead_letters.redrive", four.message_id
    yield "dead_letters.purge", five.message_id
    yield "dead_letters.purge", {"kind": "nobody"}
    yield "admin.attempts", two.message_id
    yield "admin.recent_attempts", {"channel": "b"}
    yield "admin.record_audit", "purge", {"by": "dana"}
    yield "admin.audits", {"message_id": 1}
    yield "admin.trend", {"channel": "b"}
    yield "admin.count_undelivered", "d", {"state": "ready"}
    yield "admin.retry_now", two.message_id
    yield "admin.retry_now", later.message_id
    yield "admin.move", many[-1].message_id, "new"
    yield "cancel", many[-2].message_id
    yield "purge", "d"
    lose(database, lost.message_id)
    yield "admin.retry_now", lost.message_id
    yield "dequeue", {"limit": 90}
    yield "channels", {"channel": "f"}
    yield "resume", {"channel": "f"}


def _schedules() -> Steps:
    yield "schedules.set", "nightly", {"channel": "a", "cron": "0 3 * * *"}
    yield "schedules.pause", "nightly", {"channel": "a"}
    yield "schedules.list", {"channel": "a"}
    yield "schedules.resume", "nightly", {"channel": "a"}
    yield "schedules.run", "nightly", {"channel": "a"}
    yield "schedules.remove", "nightly", {"channel": "a"}
    yield ("schedules.list",)


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
    answered: list[Any] = []
    steps = _steps(queue, plain, other)
    step = next(steps)
    verbs = set()
    while step:
        verbs.add(step[0])
        answer = _call(queue, step[0], plain, step[1:])
        answered.append((step[0], _told(answer)))
        step = _next(steps, answer)
    plain.dispose()
    assert verbs == every_verb()
    awaited = Queue(queue.name)
    steps = _steps(awaited, engine, database)
    step = next(steps)
    for expected in answered:
        answer = await _call(awaited, step[0], async_engine, step[1:])
        assert (step[0], _told(answer)) == expected
        step = _next(steps, answer)


def _call(queue: Queue, verb: str, where: object, arguments: tuple[Any, ...]) -> Any:
    given = [one for one in arguments if not isinstance(one, dict)]
    named = {name: value for one in arguments if isinstance(one, dict) for name, value in one.items()}
    return attrgetter(verb)(queue)(where, *given, **named)


def _next(steps: Steps, answer: object) -> tuple[Any, ...]:
    try:
        return steps.send(answer)
    except StopIteration:
        return ()


async def test_a_cancelled_call_leaves_its_connection_as_it_was(queue: Queue, database: Database) -> None:
    """The next transaction on it can be rolled back."""
    engine = create_async_engine(database.url, pool_size=1, max_overflow=0)
    await queue.stats(engine)
    database.execute("create table written (id integer)")
    for call in queue.enqueue(engine, channel="a", payload=1), queue.stats(engine), queue.dequeue(engine):
        # psycopg gives up control between two steps if its last wait was some milliseconds ago.
        database.execute("select pg_sleep(0.01)")
        task = asyncio.ensure_future(call)
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
