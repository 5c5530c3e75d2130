"""Deliveries that their handlers settle themselves."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, InvalidArgument, Queue, Worker
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import auntil, is_empty, send, until

ENDS: dict[str, Callable[[Queue, Any, Delivery], None]] = {
    "complete": lambda queue, session, delivery: queue.complete(session, delivery),
    "retry": lambda queue, session, delivery: queue.retry(session, delivery, delay=timedelta(milliseconds=50)),
    "release": lambda queue, session, delivery: queue.release(session, delivery, delay=timedelta(milliseconds=50)),
    "bury": lambda queue, session, delivery: queue.bury(session, delivery, reason="poison"),
}
_COUNTED = {"complete": "completed", "retry": "retried", "release": "released", "bury": "buried"}


@pytest.fixture
def effects(database: Database) -> Callable[[], int]:
    """How many effects the handlers' sessions have committed."""
    database.execute("create table effect (message bigint)")
    return lambda: int(database.value("select count(*) from effect"))


def _check(worker: Worker | AsyncWorker, verb: str, queue: Queue, engine: Engine) -> None:
    counts = worker.stats.as_dict()
    expected = {"completed": 0 if verb == "bury" else 1, "lost": 0, "retried": 0, "released": 0, "buried": 0}
    assert {name: counts[name] for name in expected} == {**expected, _COUNTED[verb]: 1}
    assert [letter.reason for letter in queue.dead_letters(engine)] == (["poison"] if verb == "bury" else [])


@pytest.mark.parametrize("verb", ENDS)
def test_in_its_session(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, effects: Callable[[], int], verb: str
) -> None:
    """The message ends as the handler asked, with what its session wrote; what it asked to have again comes again."""
    calls = []

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        session.execute(text("insert into effect values (:id)"), {"id": delivery.message_id})
        calls.append(delivery)
        if len(calls) == 1:
            with session.begin_nested():
                ENDS[verb](queue, session, delivery)

    worker = start(queue, concurrency=1)
    send(engine, queue, 1)
    until(lambda: is_empty(database), "it has ended")
    assert len(calls) == effects() == (1 if verb in {"complete", "bury"} else 2)
    worker.stop()
    _check(worker, verb, queue, engine)


@pytest.mark.parametrize("verb", ENDS)
async def test_in_its_async_session(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, effects: Callable[[], int], verb: str
) -> None:
    """The same in asyncio."""
    calls = []

    @queue.handler()
    async def handle(delivery: Delivery, session: AsyncSession) -> None:
        await session.execute(text("insert into effect values (:id)"), {"id": delivery.message_id})
        calls.append(delivery)
        if len(calls) == 1:
            ENDS[verb](queue, session, delivery)

    async with AsyncWorker(async_engine, queue, concurrency=1) as worker:
        send(engine, queue, 1)
        await auntil(lambda: is_empty(database), "it has ended")
    assert len(calls) == effects() == (1 if verb in {"complete", "bury"} else 2)
    _check(worker, verb, queue, engine)


@pytest.mark.parametrize("verb", ENDS)
def test_in_a_transaction_of_its_own(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    database: Database,
    start: StartWorker,
    verb: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What the handler has ended itself is not lost, and the log says nothing of it."""
    caplog.set_level(logging.INFO)
    calls = []

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        calls.append(delivery)
        if len(calls) == 1:
            with Session(engine) as session, session.begin():
                ENDS[verb](queue, session, delivery)

    worker = start(queue, concurrency=1)
    send(engine, queue, 1)
    until(lambda: is_empty(database), "it has ended")
    worker.stop()
    _check(worker, verb, queue, engine)
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert all("is a dead letter now" in message for message in warned)
    assert len(warned) == (1 if verb == "bury" else 0)


@pytest.mark.parametrize("way", ["savepoint", "refused"])
def test_an_end_that_did_not_count(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, start: StartWorker, effects: Callable[[], int], way: str
) -> None:
    """What was asked for in a savepoint that was rolled back, or was refused, leaves the completion in the session."""
    refused = []

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        session.execute(text("insert into effect values (1)"))
        if way == "refused":
            with pytest.raises(InvalidArgument):
                queue.complete(42, delivery)  # type: ignore[arg-type]
        else:
            nested = session.begin_nested()
            queue.release(session, delivery)
            nested.rollback()

        @event.listens_for(session, "after_commit")
        def look(_: Session) -> None:
            # Another transaction sees both, or none.
            refused.append((effects(), is_empty(database)))

    worker = start(queue)
    send(engine, queue, 1)
    until(lambda: is_empty(database), "it is completed")
    worker.stop()
    assert refused[-1] == (1, True)
    assert (worker.stats.completed, worker.stats.released, effects()) == (1, 0, 1)


@pytest.mark.parametrize("verb", ["complete", "bury"])
def test_what_somebody_else_has(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, verb: str
) -> None:
    """A handler that cannot end its delivery, as it is lost, has not ended it: it is counted as lost."""

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        database.execute("update fq_message set lease_id = 4711, deliveries = deliveries + 1")
        with Session(engine) as session, session.begin():
            ENDS[verb](queue, session, delivery)

    worker = start(queue)
    send(engine, queue, 1)
    until(lambda: worker.stats.lost, "it is counted")
    worker.stop()
    assert (worker.stats.lost, worker.stats.completed, worker.stats.buried) == (1, 0, 0)
    assert not is_empty(database)


def test_a_retry_of_the_last_attempt(
    queue: Queue, engine: Engine, start: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """It makes a dead letter, is counted as one, and the log says so."""

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        queue.retry(session, delivery, error="no use")

    worker = start(queue)
    send(engine, queue, 1, max_attempts=1)
    until(lambda: worker.stats.buried, "it is counted")
    worker.stop()
    assert [letter.error for letter in queue.dead_letters(engine)] == ["no use"]
    assert "is a dead letter now, at attempt 1 of 1" in caplog.text


def test_in_a_transaction_that_is_rolled_back(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, effects: Callable[[], int]
) -> None:
    """An end that was not committed is none: the worker completes, with the session's writes or right after them."""

    @queue.handler("alone")
    def handle(delivery: Delivery) -> None:
        with Session(engine) as session:
            queue.retry(session, delivery)

    @queue.handler("session")
    def handle_in_session(delivery: Delivery, session: Session) -> None:
        handle(delivery)
        session.execute(text("insert into effect values (1)"))

    worker = start(queue)
    send(engine, queue, 1, kind="alone")
    send(engine, queue, 1, kind="session")
    until(lambda: is_empty(database), "both are completed")
    worker.stop()
    assert (worker.stats.completed, worker.stats.retried, worker.stats.lost, effects()) == (2, 0, 0, 1)


def test_elsewhere_and_then_failing(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """What a handler has completed stays completed, whatever it raises afterwards."""

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        queue.complete(engine, delivery)
        raise ValueError("too late")

    worker = start(queue)
    send(engine, queue, 1)
    until(lambda: worker.stats.completed == 1, "it is counted")
    worker.stop()
    assert is_empty(database)
    assert (worker.stats.retried, worker.stats.lost) == (0, 0)
