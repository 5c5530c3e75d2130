"""Notifications: waiting consumers get one when work is there for them; what must not notify does not."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Queue
from tests.fixtures.database import Database

Work = Callable[[Queue, Session, Delivery], object]

WAKING: dict[str, Work] = {
    "enqueue": lambda queue, session, _: queue.enqueue(session, channel="b", payload=1),
    "retry": lambda queue, session, delivery: queue.retry(session, delivery),
    "release": lambda queue, session, delivery: queue.release(session, delivery),
    "resume": lambda queue, session, _: queue.resume(session, "paused"),
    "resume the queue": lambda queue, session, _: queue.resume(session),
    "configure_channel": lambda queue, session, _: queue.configure_channel(session, "a", ChannelPolicy(weight=2)),
    "configure": lambda queue, session, _: queue.configure(session, max_concurrency=5),
    "redrive": lambda queue, session, _: queue.redrive(session),
}


@pytest.fixture
def delivery(queue: Queue, engine: Engine) -> Delivery:
    """A message that is out, beside a dead letter, a paused channel and a paused queue."""
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        queue.enqueue(session, channel="a", payload=2)
        session.commit()
    first, second = queue.dequeue(engine, limit=2)
    queue.bury(engine, first)
    queue.pause(engine, "paused", new=True)
    queue.pause(engine)
    return second


def _waits(database: Database) -> None:
    database.value("select topic from fq_begin_wait('documents', 'waiter', null, 60000000)")


def _notified(database: Database, work: Callable[[], None]) -> list[str]:
    """The payloads of the notifications that the work sends."""
    with psycopg.connect(database.conninfo, autocommit=True) as listener:
        listener.execute("listen fairqueue")
        work()
        listener.execute("select")
        return [note.payload for note in listener.notifies(timeout=0)]


@pytest.mark.parametrize("verb", WAKING)
def test_a_waiting_consumer_is_notified(
    queue: Queue, engine: Engine, database: Database, delivery: Delivery, verb: str
) -> None:
    """Work for a queue whose consumer waits notifies it with the COMMIT."""
    _waits(database)

    def work() -> None:
        with Session(engine) as session:
            WAKING[verb](queue, session, delivery)
            session.commit()

    [payload] = _notified(database, work)
    assert payload.endswith(":documents")


@pytest.mark.parametrize("verb", WAKING)
def test_nobody_waits(queue: Queue, engine: Engine, database: Database, delivery: Delivery, verb: str) -> None:
    """While no consumer waits nothing is notified."""

    def work() -> None:
        with Session(engine) as session:
            WAKING[verb](queue, session, delivery)
            session.commit()

    assert _notified(database, work) == []


@pytest.mark.parametrize("verb", WAKING)
def test_two_phase(queue: Queue, engine: Engine, database: Database, delivery: Delivery, verb: str) -> None:
    """A two-phase session never notifies, so that it can be prepared."""
    _waits(database)

    def work() -> None:
        with Session(engine, twophase=True) as session:
            WAKING[verb](queue, session, delivery)
            session.prepare()
            session.commit()

    assert _notified(database, work) == []


def test_two_phase_connection(queue: Queue, engine: Engine, database: Database) -> None:
    """Nor does a two-phase transaction of a connection, within savepoints too, nor a session that joined it."""
    _waits(database)

    def work() -> None:
        with engine.connect() as connection:
            two_phase = connection.begin_twophase()
            queue.enqueue_now(connection, channel="a", payload=1)
            with connection.begin_nested():
                queue.enqueue_now(connection, channel="b", payload=1)
            with Session(connection, join_transaction_mode="rollback_only") as session:
                queue.enqueue_now(session, channel="c", payload=1)
                session.commit()
            two_phase.prepare()
            two_phase.commit()

    assert _notified(database, work) == []


@pytest.mark.parametrize("verb", WAKING)
def test_notify_off(engine: Engine, database: Database, delivery: Delivery, verb: str) -> None:
    """A queue that was told not to notify never does."""
    _waits(database)
    quiet = Queue("documents", notify=False)

    def work() -> None:
        with Session(engine) as session:
            WAKING[verb](quiet, session, delivery)
            session.commit()

    assert _notified(database, work) == []


def test_on_engines(queue: Queue, database: Database, delivery: Delivery) -> None:
    """The end of a delivery on an engine notifies as well."""
    _waits(database)
    engine = create_engine(database.url)
    assert len(_notified(database, lambda: queue.retry(engine, delivery, delay=timedelta(seconds=1)))) == 1
    engine.dispose()
