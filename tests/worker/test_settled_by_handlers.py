"""Deliveries that their handlers settle themselves."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue import AsyncWorker, Delivery, InvalidArgument, Queue
from sqlalchemy_fairqueue.worker.settler import Settler
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import auntil, count_effects, drained, is_empty, send, until, write_effect

pytestmark = pytest.mark.usefixtures("effects")

ENDS: dict[str, Callable[[Queue, Any, Delivery], None]] = {
    "complete": lambda queue, session, delivery: queue.complete(session, delivery),
    "retry": lambda queue, session, delivery: queue.retry(session, delivery, delay=timedelta(milliseconds=50)),
    "release": lambda queue, session, delivery: queue.release(session, delivery, delay=timedelta(milliseconds=50)),
    "bury": lambda queue, session, delivery: queue.bury(session, delivery, reason="poison"),
}


@pytest.mark.parametrize("where", ["its session", "its async session", "a transaction of its own"])
async def test_by_each_verb(  # noqa: PLR0917 - fixtures
    queue: Queue,
    engine: Engine,
    async_engine: AsyncEngine,
    database: Database,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    """The message ends as the handler asked, with what its session wrote; what it asked to have again comes again.

    It is not lost, also if the handler has ended it in a transaction of its own, and the log says nothing of it.
    """
    caplog.set_level(logging.INFO)
    calls: list[str] = []

    def handle(delivery: Delivery, session: Session) -> None:
        write_effect(session, delivery)
        verb = delivery.payload
        calls.append(verb)
        if calls.count(verb) == 1:
            with session.begin_nested():
                ENDS[verb](queue, session, delivery)

    async def await_it(delivery: Delivery, session: AsyncSession) -> None:
        await session.run_sync(lambda sync: handle(delivery, sync))

    def in_its_own(delivery: Delivery) -> None:
        with Session(engine) as session, session.begin():
            handle(delivery, session)

    handlers: dict[str, Any] = {"its session": handle, "its async session": await_it}
    queue.handler()(handlers.get(where, in_its_own))
    sessions = sessionmaker(engine)
    async with AsyncWorker(async_engine, queue, concurrency=1, sync_session_factory=sessions) as worker:
        send(engine, queue, *ENDS)
        await auntil(lambda: is_empty(database), "all have ended")
    assert len(calls) == count_effects(database)
    # What was asked to come again came again, and was completed then.
    assert sorted(calls) == sorted([*ENDS, "retry", "release"])
    counts = worker.stats.as_dict()
    expected = {"completed": 3, "lost": 0, "retried": 1, "released": 1, "buried": 1}
    assert {name: counts[name] for name in expected} == expected
    assert [letter.reason for letter in queue.dead_letters.list(engine)] == ["poison"]
    [warned] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "is a dead letter now" in warned


def test_two_deliveries_that_are_settled_together(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that its handler has retried counts as retried, where both wait to be completed."""
    original = Settler.write
    waiting: list[Any] = []

    def hindered(writer: Settler, queue: Any, verb: Any, settlements: Any) -> Any:
        if not waiting and len(settlements) == 1:
            # It waits for the other delivery of its message. Both may also come at once.
            waiting.extend(settlements)
            return []
        monkeypatch.undo()
        return original(writer, queue, verb, [*settlements, *waiting])

    monkeypatch.setattr(Settler, "write", hindered)
    calls: list[int] = []

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        calls.append(delivery.deliveries)
        if len(calls) == 1:
            queue.retry(engine, delivery, delay=timedelta(milliseconds=1))

    worker = start(queue, lease=timedelta(hours=1), timings={"locked_again": 0.01})
    send(engine, queue, 1)
    until(lambda: is_empty(database), "it is completed")
    worker.stop()
    assert calls == [1, 2]
    assert (worker.stats.completed, worker.stats.retried, worker.stats.lost) == (1, 1, 0)


def test_an_end_that_did_not_count(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """What was asked for in a savepoint that was rolled back, or was refused, leaves the completion in the session."""
    left: list[tuple[int, int]] = []

    @queue.handler()
    def handle(delivery: Delivery, session: Session) -> None:
        session.execute(text("insert into effect values (1)"))
        if delivery.payload == "refused":
            with pytest.raises(InvalidArgument):
                queue.complete(42, delivery)  # type: ignore[call-overload]
        else:
            nested = session.begin_nested()
            queue.release(session, delivery)
            nested.rollback()

        @event.listens_for(session, "after_commit")
        def look(_: Session) -> None:
            # Another transaction sees both, or none.
            left.append((count_effects(database), database.value("select count(*) from fq_message")))

    worker = start(queue, concurrency=1)
    send(engine, queue, "savepoint", "refused")
    until(lambda: is_empty(database), "both are completed")
    worker.stop()
    assert [left[0], left[-1]] == [(1, 1), (2, 0)]
    assert (worker.stats.completed, worker.stats.released, count_effects(database)) == (2, 0, 2)


def test_what_somebody_else_has(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A handler that cannot end its delivery, as it is lost, has not ended it: it is counted as lost.

    What it has completed stays completed, whatever it raises afterwards.
    """

    @queue.handler()
    def handle(delivery: Delivery) -> None:
        if delivery.payload == "own":
            queue.complete(engine, delivery)
            raise ValueError("too late")
        lost = "update fq_message set lease_id = 4711, deliveries = deliveries + 1 where id = :id"
        database.execute(lost, id=delivery.message_id)
        with Session(engine) as session, session.begin():
            ENDS[delivery.payload](queue, session, delivery)

    worker = start(queue)
    send(engine, queue, "complete", "bury", "own")
    until(lambda: worker.stats.lost == 2 and worker.stats.completed == 1, "they are counted")
    worker.stop()
    assert (worker.stats.retried, worker.stats.buried) == (0, 0)
    assert database.value("select count(*) from fq_message") == 2


def test_a_retry_of_the_last_attempt(queue: Queue, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """It makes a dead letter, is counted as one, and the log says so."""
    queue.handler()(lambda delivery, session: queue.retry(session, delivery, error="no use"))
    send(engine, queue, 1, max_attempts=1)
    assert drained(engine, queue).stats.buried == 1
    assert [letter.error for letter in queue.dead_letters.list(engine)] == ["no use"]
    assert "is a dead letter now, at attempt 1 of 1" in caplog.text


def test_in_a_transaction_that_is_rolled_back(queue: Queue, engine: Engine, database: Database) -> None:
    """An end that was not committed is none: the worker completes, with the session's writes or right after them."""

    @queue.handler("alone")
    def handle(delivery: Delivery) -> None:
        with Session(engine) as session:
            queue.retry(session, delivery)

    @queue.handler("session")
    def handle_in_session(delivery: Delivery, session: Session) -> None:
        handle(delivery)
        write_effect(session, delivery)

    for kind in "alone", "session":
        send(engine, queue, 1, kind=kind)
    stats = drained(engine, queue).stats
    assert (stats.completed, stats.retried, stats.lost, count_effects(database)) == (2, 0, 0, 1)
    assert is_empty(database)
