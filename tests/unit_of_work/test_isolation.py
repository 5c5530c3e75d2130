"""Business transactions of every isolation level commit while their channels are served; AUTOCOMMIT is refused before
anything is sent, however it was asked for.
"""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.database.errors import sqlstate_of
from sqlalchemy_fairqueue.errors import AutocommitError, IsolationError
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


AUTOCOMMIT = "AUTOCOMMIT"


@pytest.fixture
def autocommit_engine(database: Database) -> Iterator[Engine]:
    """An engine that is told AUTOCOMMIT when it is made."""
    engine = create_engine(database.url, isolation_level=AUTOCOMMIT)
    yield engine
    engine.dispose()


def test_sessions(engine: Engine, autocommit_engine: Engine, database: Database) -> None:
    """A session in AUTOCOMMIT fails its commit, or its immediate enqueue, with nothing sent."""
    option = {"isolation_level": AUTOCOMMIT}
    with engine.connect().execution_options(**option) as connection:
        forms = [Session(autocommit_engine), Session(engine.execution_options(**option)), Session(connection)]
        forms.append(Session(engine))
        forms[-1].connection(execution_options=option)
        for form in forms:
            with form as session:
                with pytest.raises(AutocommitError):
                    QUEUE.enqueue(session.connection(), channel="a", payload=1)
                QUEUE.enqueue(session, channel="a", payload=1)
                with pytest.raises(AutocommitError):
                    session.commit()
                session.rollback()
    assert database.value("select count(*) from fq_channel") == 0


def test_connections(engine: Engine, autocommit_engine: Engine, database: Database) -> None:
    """A connection in AUTOCOMMIT is refused by every verb that works in the caller's transaction."""
    with autocommit_engine.connect() as one, engine.connect().execution_options(isolation_level=AUTOCOMMIT) as other:
        for connection in (one, other):
            for verb in (
                lambda given: QUEUE.enqueue(given, channel="a", payload=1).message_id,
                lambda given: QUEUE.cancel(given, 1),
                lambda given: QUEUE.configure(given, defaults=QUEUE.defaults),
                lambda given: QUEUE.configure_channel(given, "a", QUEUE.defaults),
            ):
                with pytest.raises(AutocommitError):
                    verb(connection)
    assert database.value("select count(*) from fq_channel") == 0


def test_password_is_not_told(database: Database) -> None:
    """The error names the engine without its password."""
    engine = create_engine(database.url.set(password="secret"), isolation_level=AUTOCOMMIT)  # noqa: S106 - not one
    with engine.connect() as connection, pytest.raises(AutocommitError) as caught:
        QUEUE.enqueue(connection, channel="a", payload=1)
    engine.dispose()
    assert "secret" not in str(caught.value)


def test_engines_serve_in_autocommit(autocommit_engine: Engine, database: Database) -> None:
    """Calls that are one statement on an engine may use such an engine, and those that are several may not."""
    QUEUE.enqueue(autocommit_engine, channel="a", payload=1)
    with pytest.raises(AutocommitError):
        QUEUE.cancel(autocommit_engine, 1)
    with pytest.raises(AutocommitError):
        QUEUE.configure_channel(autocommit_engine, "a", QUEUE.defaults)
    [delivery] = QUEUE.dequeue(autocommit_engine)
    QUEUE.extend(autocommit_engine, delivery)
    QUEUE.complete(autocommit_engine, delivery)
    assert channels(database) == []
