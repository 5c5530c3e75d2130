"""How many attempts a message has, and where it is seen that it has no more."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, RetryPolicy
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import auntil, expire_leases, is_empty, send, until

_ONCE = RetryPolicy(max_attempts=1)


def _die_with_it(queue: Queue, engine: Engine, database: Database) -> None:
    """Take the message and let the lease end, as a process does that dies with it."""
    until(lambda: queue.dequeue(engine), "it is taken")
    expire_leases(database)


@pytest.mark.parametrize(("deaths", "attempts"), [(1, "attempt 1"), (3, "attempts 1 to 3")])
def test_attempts_without_a_word(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, deaths: int, attempts: str
) -> None:
    """A handler is not called beyond its policy's limit, whatever became of earlier attempts, and the letter tells."""
    called: list[int] = []
    queue.handler(retry=_ONCE)(lambda delivery: called.append(delivery.attempt))
    send(engine, queue, 1)
    for _ in range(deaths):
        _die_with_it(queue, engine, database)
    start(queue)
    until(lambda: is_empty(database), "it is a dead letter")
    assert not called
    reason = database.value("select reason from fq_dead_letter")
    assert reason.startswith(f"attempts exhausted: the limit is 1, and {attempts} ended without a word")


async def test_attempts_without_a_word_in_asyncio(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database
) -> None:
    """The same in asyncio, with the policy of the worker."""
    called: list[int] = []
    queue.handler()(lambda delivery: called.append(delivery.attempt))
    send(engine, queue, 1)
    _die_with_it(queue, engine, database)
    async with AsyncWorker(async_engine, queue, retry=_ONCE):
        await auntil(lambda: is_empty(database), "it is a dead letter")
    assert not called
    assert database.value("select count(*) from fq_dead_letter") == 1


def test_what_is_given_back_is_no_attempt(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Deliveries that were released leave the attempt to the next one."""
    called: list[Delivery] = []
    queue.handler(retry=RetryPolicy(first=timedelta(), max_attempts=1))(called.append)
    send(engine, queue, 1)
    for _ in range(3):
        queue.release(engine, queue.dequeue(engine))
    start(queue)
    until(lambda: is_empty(database), "it is done")
    assert [(delivery.attempt, delivery.deliveries) for delivery in called] == [(1, 4)]
