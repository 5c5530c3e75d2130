"""Business transactions of every isolation level commit while their channels are served."""

from datetime import timedelta

import pytest
from sqlalchemy import URL, Engine, create_engine, text
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


def _strict(url: URL, level: str) -> Engine:
    """An engine for which the server's default isolation is that one."""
    return create_engine(
        url, connect_args={"options": f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"}
    )


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


def test_default_isolation_of_the_server(engine: Engine, database: Database) -> None:
    """Where the server's default is strict, dequeue asks for READ COMMITTED, and what engines settle stays settled."""
    strict = _strict(database.url, "serializable")
    with strict.connect() as connection:
        assert connection.scalar(text("show transaction_isolation")) == "serializable"
    _seed(engine, "a", "b", "c", "d")
    deliveries = QUEUE.dequeue(strict, limit=4)
    assert len(deliveries) == 4
    QUEUE.extend(strict, deliveries)
    QUEUE.complete(strict, deliveries[0])
    QUEUE.retry(strict, deliveries[1])
    QUEUE.release(strict, deliveries[2])
    QUEUE.bury(strict, deliveries[3])
    strict.dispose()
    assert channels(database) == ["b", "c"]
    assert database.value("select count(*) from fq_dead_letter") == 1
    assert database.value("select count(*) from fq_message where lease_id is not null") == 0


def test_alone_once_the_default_is_known(engine: Engine, database: Database) -> None:
    """After a dequeue an engine asks for READ COMMITTED; what it then does alone is committed when it returns."""
    strict = _strict(database.url, "serializable")
    _seed(engine, "a")
    batch = QUEUE.dequeue(strict)
    QUEUE.extend(strict, batch, lease=timedelta(hours=1))
    message_id = QUEUE.enqueue(strict, channel="b", payload=1).message_id
    strict.dispose()
    assert database.value("select expires_at - fq_now() > 1.8e9 from fq_lease")
    assert database.value("select id from fq_message where id = :id", id=message_id) == message_id
    assert channels(database) == ["a", "b"]


def test_dequeue_in_a_strict_transaction(connect: Connect) -> None:
    """The SQL function itself refuses a strict transaction by a code that has a class."""
    connection = connect(isolation_level="REPEATABLE READ")
    with pytest.raises(Exception, match="repeatable read") as caught:
        connection.execute(text("select * from fq_dequeue('documents', 1, 1000000, 'me')"))
    assert IsolationError is IsolationError.of_sqlstate[sqlstate_of(caught.value)]
