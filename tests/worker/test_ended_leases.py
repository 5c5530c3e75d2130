"""Leases of a worker that has stopped."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import LONG_LEASE, auntil, is_empty, send, until


def test_a_clean_stop(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A worker that has stopped is no consumer any more, whether it has worked or only waited; others stay."""
    queue.handler()(lambda _: None)
    other = Queue("other")
    other.handler()(lambda _: None)
    send(engine, other, "held")
    held = other.dequeue(engine, lease=LONG_LEASE)
    for messages in (0, 3):
        worker = start(queue, other, lease=LONG_LEASE)
        send(engine, queue, *range(messages))
        until(lambda: worker.stats.completed == messages, "all are done")  # noqa: B023
        until(lambda: database.value("select count(*) from fq_lease where waiting_until is not null") == 2, "it waits")
        assert (queue.stats(engine).consumers, other.stats(engine).consumers) == (1, 2)
        worker.stop()
        assert (queue.stats(engine).consumers, other.stats(engine).consumers) == (0, 1)
    other.complete(engine, held)


async def test_a_clean_stop_in_a_loop(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """The same in asyncio."""

    @queue.handler()
    async def handle(_: Delivery) -> None:
        """Nothing is to do."""

    async with AsyncWorker(async_engine, queue, housekeeping=False):
        send(engine, queue, *range(3))
        await auntil(lambda: is_empty(database), "all are done")
        assert queue.stats(engine).consumers == 1
    assert queue.stats(engine).consumers == 0


def test_a_message_that_cannot_be_settled(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """A lease that still holds a message stays, so that the message comes back when it expires."""
    queue.handler()(lambda _: None)
    database.execute("create function refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$")
    database.execute(
        "create trigger refused before delete or update on fq_message for each row when (old.lease_id is not null)"
        " execute function refuse()"
    )
    send(engine, queue, 1)
    worker = start(queue, lease=LONG_LEASE, timings={"settle_at_stop": 0.1})
    until(lambda: "cannot be settled by release" in caplog.text, "it cannot be settled")
    worker.stop(timedelta())
    assert queue.stats(engine).consumers == 1
    assert database.value("select count(*) from fq_message where lease_id is not null") == 1
