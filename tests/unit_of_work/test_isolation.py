"""Business transactions of every isolation level commit while their channels are served."""

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.database.errors import sqlstate_of
from sqlalchemy_fairqueue.errors import IsolationError
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.unit_of_work.business import QUEUE, Upload, channels, uploads

STRICT = pytest.mark.parametrize("level", ["SERIALIZABLE", pytest.param("REPEATABLE READ", marks=pytest.mark.whole)])


def _seed(engine: Engine, *names: str) -> None:
    with Session(engine) as session:
        for name in names:
            QUEUE.enqueue(session, channel=name, payload=name)
        session.commit()


@STRICT
def test_commits_while_served(engine: Engine, database: Database, level: IsolationLevel) -> None:
    """A strict transaction enqueues to channels that were served since its snapshot, and commits."""
    _seed(engine, "a", "b", "a", "b")
    with Session(engine.execution_options(isolation_level=level)) as session:
        session.add(Upload(name="x"))
        session.flush()
        QUEUE.complete(engine, QUEUE.dequeue(engine, limit=3))
        QUEUE.enqueue(session, channel="a", payload=1)
        QUEUE.enqueue(session, channel="b", payload=1)
        session.commit()
    assert uploads(database) == ["x"]
    assert len(QUEUE.dequeue(engine, limit=10)) == 3


@STRICT
def test_completion_and_follow_up(engine: Engine, database: Database, level: IsolationLevel) -> None:
    """Strict transactions complete and follow up side by side, on channels of their own and of each other."""
    _seed(engine, *"abcde")
    deliveries = QUEUE.dequeue(engine, limit=5)
    strict = engine.execution_options(isolation_level=level)
    sessions = [Session(strict) for _ in deliveries]
    for number, (session, delivery) in enumerate(zip(sessions, deliveries, strict=True)):
        session.add(Upload(name=delivery.channel))
        session.flush()
        QUEUE.complete(session, delivery)
        QUEUE.enqueue(session, channel="abcde"[(number + 1) % 5], payload="next")
    for session in sessions:
        session.commit()
        session.close()
    assert uploads(database) == list("abcde")
    assert sorted(channels(database)) == list("abcde")


@STRICT
def test_an_open_transaction_hinders_nobody(
    engine: Engine, database: Database, connect: Connect, waits: Waits, level: IsolationLevel
) -> None:
    """While a strict transaction with a sent enqueue stays open, its channel is filled, served and completed."""
    _seed(engine, "a", "a")
    open_one = connect(isolation_level=level)
    QUEUE.enqueue(open_one, channel="a", payload="open")

    def work(other: Engine) -> None:
        _seed(other, "a")
        other_queue = Queue("documents")
        other_queue.complete(other, other_queue.dequeue(other, limit=10))

    waits.unhindered(work)
    open_one.commit()
    assert channels(database) == ["a"]
    assert [one.payload for one in QUEUE.dequeue(engine, limit=10)] == ["open"]


def test_dequeue_in_a_strict_transaction(connect: Connect) -> None:
    """The SQL function itself refuses a strict transaction by a code that has a class."""
    connection = connect(isolation_level="REPEATABLE READ")
    with pytest.raises(Exception, match="repeatable read") as caught:
        connection.execute(text("select * from fq_dequeue('documents', 1, 1000000, 'me')"))
    assert IsolationError is IsolationError.of_sqlstate[sqlstate_of(caught.value)]
