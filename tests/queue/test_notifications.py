"""Notifications: waiting consumers get one when work is there for them; what must not notify does not."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import Engine
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
    "redrive": lambda queue, session, _: queue.dead_letters.redrive(session),
}


def _arranged(engine: Engine, name: str) -> Delivery:
    """A message of a queue that is out, beside a dead letter, a paused channel and a paused queue."""
    queue = Queue(name)
    for payload in (1, 2):
        queue.enqueue(engine, channel="a", payload=payload)
    first, second = queue.dequeue(engine, limit=2)
    queue.bury(engine, first)
    queue.pause(engine, "paused", new=True)
    queue.pause(engine)
    return second


def _waits(database: Database, name: str) -> None:
    database.value("select topic from fq_wait(:name, 'waiter', null, 60000000)", name=name)


def _notified(database: Database, work: Callable[[], None]) -> list[str]:
    """The payloads of the notifications that the work sends."""
    with psycopg.connect(database.conninfo, autocommit=True) as listener:
        listener.execute("listen fairqueue")
        work()
        listener.execute("select")
        return [note.payload for note in listener.notifies(timeout=0)]


@pytest.mark.parametrize(
    ("two_phase", "notify"), [(False, True), (True, True), (False, False)], ids=["waiting", "two-phase", "off"]
)
def test_who_is_notified(engine: Engine, database: Database, *, two_phase: bool, notify: bool) -> None:
    """Work for a queue whose consumer waits notifies it with the COMMIT, but not in two-phase sessions, which could not
    be prepared, nor from a queue that was told not to notify.
    """
    for verb, work in WAKING.items():
        delivery = _arranged(engine, verb)
        _waits(database, verb)

        def commit(work: Work = work, verb: str = verb, delivery: Delivery = delivery) -> None:
            with Session(engine, twophase=two_phase) as session:
                work(Queue(verb, notify=notify), session, delivery)
                if two_phase:
                    session.prepare()
                session.commit()

        notified = [payload.rpartition(":")[2] for payload in _notified(database, commit)]
        assert notified == ([verb] if notify and not two_phase else []), verb


def test_two_phase_connection(queue: Queue, engine: Engine, database: Database) -> None:
    """A two-phase transaction of a connection notifies nobody, within savepoints too, nor does a joined session."""
    _waits(database, "documents")

    def work() -> None:
        with engine.connect() as connection:
            two_phase = connection.begin_twophase()
            queue.enqueue(connection, channel="a", payload=1)
            with connection.begin_nested():
                queue.enqueue(connection, channel="b", payload=1)
            with Session(connection, join_transaction_mode="rollback_only") as session:
                queue.enqueue(session.connection(), channel="c", payload=1)
                session.commit()
            two_phase.prepare()
            two_phase.commit()

    assert _notified(database, work) == []


def test_on_engines(engine: Engine, database: Database) -> None:
    """The end of a delivery on an engine notifies as well."""
    delivery = _arranged(engine, "documents")
    _waits(database, "documents")
    queue = Queue("documents")
    assert len(_notified(database, lambda: queue.retry(engine, delivery, delay=timedelta(seconds=1)))) == 1
