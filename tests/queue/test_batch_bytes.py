"""Batches bounded by bytes, and contents that come as they are."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import Queue
from tests.fixtures.database import Database
from tests.fixtures.drivers import DRIVER
from tests.worker.conftest import StartWorker, start
from tests.worker.helpers import is_empty, send, until

__all__ = ["start"]

CONTENT = 'x" \\ \u20ac' * 100


def _fill(queue: Queue, engine: Engine, count: int = 5) -> int:
    """Messages of one size in a channel each; returns the size."""
    for number in range(count):
        queue.enqueue(engine, channel=f"{number}", payload=CONTENT, headers={"number": number})
    return len(queue.codec.encode(CONTENT)) + len('{"number": 0}')


async def test_a_batch_is_bounded(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """A batch ends before its bytes exceed the budget, says that more is there, and one message always passes."""
    size = _fill(queue, engine)
    first = queue.dequeue(engine, limit=5, max_bytes=2 * size)
    assert ([one.channel for one in first], first.due_in) == (["0", "1"], timedelta())
    assert [one.channel for one in queue.dequeue(engine, limit=5, max_bytes=1)] == ["2"]
    assert [one.headers for one in queue.dequeue(engine, limit=5)] == [{"number": 3}, {"number": 4}]
    _fill(queue, engine)
    assert [len(await queue.dequeue(async_engine, limit=5, max_bytes=3 * size + 1)) for _ in range(2)] == [3, 2]


def test_64_mebibytes_by_default(queue: Queue, engine: Engine, database: Database) -> None:
    """Of large messages few come at once unless more are asked for."""
    for _ in range(2):
        queue.enqueue(engine, channel="a", payload="")
    database.execute("update fq_message set content = convert_to(repeat('x', 33554433), 'utf8')")
    assert len(queue.dequeue(engine, limit=3)) == 1


_BINARY = pytest.mark.skipif(DRIVER != "psycopg", reason="other drivers have one format alone")


def _formats(engine: Engine) -> list[set[int]]:
    """The formats of the columns of each result from now on: 1 is binary."""
    found: list[set[int]] = []

    @event.listens_for(engine, "after_cursor_execute")
    def note(_: object, cursor: Any, statement: str, *_rest: object) -> None:
        result = getattr(cursor, "_cursor", cursor).pgresult
        if "fq_dequeue" in statement:
            found.append({result.fformat(column) for column in range(result.nfields)})

    return found


@_BINARY
async def test_contents_are_binary(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """A dequeue has binary results, and no other statement of the connection has; so it is on async engines."""
    _fill(queue, engine, 2)
    formats = _formats(engine)
    [delivery] = queue.dequeue(engine)
    assert (delivery.payload, formats) == (CONTENT, [{1}])
    with engine.connect() as connection:
        assert connection.connection.driver_connection.cursor().format == 0  # type: ignore[union-attr]
    formats = _formats(async_engine.sync_engine)
    [other] = await queue.dequeue(async_engine)
    assert (other.payload, formats) == (CONTENT, [{1}])
    await queue.complete(async_engine, [delivery, other])


def test_cursors_that_have_text_results_only(queue: Queue, engine: Engine, database: Database) -> None:
    """An application whose cursors put parameters into the statement dequeues all the same."""
    _fill(queue, engine, 1)
    theirs = create_engine(database.url, connect_args={"cursor_factory": psycopg.ClientCursor})
    formats = _formats(theirs)
    [delivery] = queue.dequeue(theirs)
    assert (delivery.payload, formats) == (CONTENT, [{0}])
    queue.complete(theirs, delivery)
    theirs.dispose()


def test_a_worker_holds_few_bytes(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """What waits for handlers is bounded: the budget, and one message."""
    sizes: list[int] = []

    @queue.handler("work")
    def work(_: object) -> None:
        executor = worker._runtime.executor  # type: ignore[union-attr]
        sizes.append(executor.buffer.size())

    send(engine, queue, *["x" * 998] * 50, kind="work")
    worker = start(queue, concurrency=1, max_bytes=2500)
    until(lambda: is_empty(database), "all are handled")
    assert len(sizes) == 50
    assert max(sizes) <= 3000
