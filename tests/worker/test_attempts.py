"""Attempts of a message, and the points at which a worker sees that none is left."""

import logging
from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import AsyncWorker, Bury, Context, Delivery, Queue, Retry, RetryPolicy
from sqlalchemy_fairqueue.values import Outcome
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


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().partition("kind default ")[2] for record in caplog.records]


@pytest.mark.parametrize(
    ("own", "policy"), [(2, RetryPolicy(first=timedelta())), (20, RetryPolicy(first=timedelta(), max_attempts=2))]
)
def test_death_is_said_and_counted(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    start: StartWorker,
    caplog: pytest.LogCaptureFixture,
    own: int,
    policy: RetryPolicy,
) -> None:
    """Whichever limit ends a message, the log names it and says that it is dead, and it is counted as buried."""
    limits: list[tuple[int, int]] = []

    @queue.handler(retry=policy)
    def handle(delivery: Delivery, context: Context) -> None:
        limits.append((delivery.attempt, context.max_attempts))
        raise ValueError("odd")

    [message_id] = send(engine, queue, 1, max_attempts=own)
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        worker = start(queue)
        until(lambda: is_empty(database), "it is a dead letter")
        worker.stop()
    assert limits == [(1, 2), (2, 2)]
    shown = f"{message_id} --queue {queue.name}"
    whose = "" if own == 2 else ": the policy's limit is 2"
    assert _said(caplog) == [
        f"failed at attempt 1 of 2: ValueError: odd; traceback: fairqueue messages show {shown}",
        f"failed at attempt 2 of 2: ValueError: odd; traceback: fairqueue dead show {shown}",
        f"is a dead letter now, at attempt 2 of 2: attempts exhausted{whose}",
    ]
    assert (worker.stats.retried, worker.stats.buried) == (1, 1)


@pytest.mark.parametrize("outcome", [Bury("no such customer"), Retry()])
def test_a_death_that_was_asked_for(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    start: StartWorker,
    caplog: pytest.LogCaptureFixture,
    outcome: Outcome,
) -> None:
    """A message that its handler buries, or wants again at its last attempt, is said to be dead as well."""
    queue.handler()(lambda _, session: outcome)  # noqa: ARG005 - carried by the session
    send(engine, queue, 1, max_attempts=1)
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        worker = start(queue)
        until(lambda: is_empty(database), "it is a dead letter")
        worker.stop()
    reason = database.value("select reason from fq_dead_letter")
    assert _said(caplog) == [f"is a dead letter now, at attempt 1 of 1: {reason}"]
    assert (worker.stats.retried, worker.stats.buried) == (0, 1)
