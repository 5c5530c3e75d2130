"""Several queues, schemas and engines in one session."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_fairqueue import FairQueueError, Queue
from sqlalchemy_fairqueue.errors import AutocommitError, UnsentWork
from sqlalchemy_fairqueue.unit_of_work.sessions import is_committing, transactions
from tests.fixtures.database import Database, MakeDatabase, install
from tests.unit_of_work.business import QUEUE, Upload, channels


class _OtherBase(DeclarativeBase):
    """Tables of another database."""


class Invoice(_OtherBase):
    """What lies there."""

    __tablename__ = "invoice"

    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def elsewhere(make_database: MakeDatabase) -> Database:
    """A second database with the queue installed."""
    return make_database()


@pytest.fixture
def other(elsewhere: Database) -> Iterator[Engine]:
    """An engine on that."""
    engine = create_engine(elsewhere.url)
    yield engine
    engine.dispose()


def test_two_queues(engine: Engine, database: Database) -> None:
    """Each queue's messages arrive in their own queue, whatever order they were asked for in."""
    letters = Queue("letters")
    with Session(engine) as session:
        for queue in (letters, QUEUE, letters, QUEUE):
            queue.enqueue(session, channel="a", payload=queue.name)
        session.commit()
    assert [one.payload for one in letters.dequeue(engine, limit=10)] == ["letters", "letters"]
    assert [one.payload for one in QUEUE.dequeue(engine, limit=10)] == ["documents", "documents"]
    assert database.value("select count(*) from fq_channel") == 2


def test_two_schemas(engine: Engine, database: Database) -> None:
    """A queue in a schema of any name is found there, and one without a schema through the search_path."""
    schema = 'we"ird %cent %s co:lon :name \\slash\\:x Ünicode ☃ a::b'
    quoted = '"' + schema.replace('"', '""') + '"'
    with engine.begin() as connection:
        connection.exec_driver_sql(f"create schema {quoted}", execution_options={"no_parameters": True})
        install(connection, schema=schema)
    second = Queue("documents", schema=schema)
    with Session(engine) as session:
        second.enqueue(session, channel="second", payload=1)
        QUEUE.enqueue(session, channel="first", payload=1)
        session.commit()
    assert channels(database) == ["first"]
    [delivery] = second.dequeue(engine, limit=10)
    assert delivery.channel == "second"
    second.extend(engine, delivery)
    second.configure_channel(engine, "second", second.defaults)
    second.complete(engine, delivery)
    with pytest.raises(FairQueueError, match="was lost"):
        second.complete(engine, delivery)


def test_two_engines(engine: Engine, other: Engine, database: Database, elsewhere: Database) -> None:
    """A session with several engines finds each queue's by its bind_arguments, also for two queues of one name."""
    here = Queue("documents", bind_arguments={"mapper": Upload})
    there = Queue("documents", bind_arguments={"mapper": Invoice})
    with Session(binds={Upload: engine, Invoice: other}) as session:
        there.enqueue(session, channel="there", payload=1)
        here.enqueue(session, channel="here", payload=1)
        session.add(Upload(name="a"))
        session.commit()
        here.enqueue(session, channel="lost", payload=1)
        there.enqueue(session, channel="lost", payload=1)
        session.rollback()
    assert (channels(database), channels(elsewhere)) == (["here"], ["there"])


def test_engines_are_taken_in_one_order(engine: Engine, other: Engine) -> None:
    """Two databases are locked in the order of the queues' names: neither would see a deadlock between them."""
    a, c = (Queue(name, bind_arguments={"mapper": Upload}) for name in "ac")
    b = Queue("b", bind_arguments={"mapper": Invoice})
    sent: list[str] = []

    def note(*given: Any) -> None:
        # The question for the version of the schema has no queue.
        sent.extend(value for name, value in given[3].items() if name == "queue")

    for one in (engine, other):
        event.listen(one, "before_cursor_execute", note)
    for order in ((a, b, c), (c, b, a), (b, c, a)):
        with Session(binds={Upload: engine, Invoice: other}) as session:
            for queue in order:
                queue.enqueue(session, channel="x", payload=1)
            session.commit()
    assert sent == ["a", "b", "c"] * 3


def test_no_engine_for_the_queue(engine: Engine, database: Database) -> None:
    """A session that cannot tell which engine holds the queue fails its commit, and a second one; after a rollback it
    is usable.
    """
    with Session(binds={Upload: engine}) as session:
        QUEUE.enqueue(session, channel="a", payload=1)
        with pytest.raises(FairQueueError, match=r"no engine for queue 'documents'.*bind_arguments"):
            session.commit()
        with pytest.raises(UnsentWork, match=r"no engine for queue .*; roll the transaction back"):
            session.commit()
        session.rollback()
        Queue("documents", bind_arguments={"mapper": Upload}).enqueue(session, channel="b", payload=1)
        session.commit()
    assert channels(database) == ["b"]


def test_shards(engine: Engine, other: Engine, database: Database, elsewhere: Database) -> None:
    """A session of shards finds the one that holds the queue by its bind_arguments, and asks for them."""

    def unused(*_: Any, **__: Any) -> Any:
        raise AssertionError

    with ShardedSession(
        shards={"here": engine, "there": other}, shard_chooser=unused, identity_chooser=unused, execute_chooser=unused
    ) as session:
        QUEUE.enqueue(session, channel="lost", payload=1)
        with pytest.raises(FairQueueError, match=r"no shard for queue 'documents'.*bind_arguments=\{'shard_id': "):
            session.commit()
        session.rollback()
        Queue("documents", bind_arguments={"shard_id": "there"}).enqueue(session, channel="there", payload=1)
        session.commit()
    assert (channels(database), channels(elsewhere)) == ([], ["there"])


def test_autocommit_on_the_second_engine(
    engine: Engine, other: Engine, database: Database, elsewhere: Database
) -> None:
    """One connection in AUTOCOMMIT stops all of them before any is sent to."""
    loose = other.execution_options(isolation_level="AUTOCOMMIT")
    with Session(binds={Upload: engine, Invoice: loose}) as session:
        Queue("a", bind_arguments={"mapper": Upload}).enqueue(session, channel="here", payload=1)
        Queue("b", bind_arguments={"mapper": Invoice}).enqueue(session, channel="there", payload=1)
        with pytest.raises(AutocommitError):
            session.commit()
    assert (channels(database), channels(elsewhere)) == ([], [])


class _LateSession(Session):
    """A session that knows its engine only while it commits."""

    def get_bind(self, *arguments: Any, **options: Any) -> Any:
        if not is_committing(transactions(self)[0]):
            raise LookupError("which tenant?")
        return super().get_bind(*arguments, **options)


def test_other_databases_are_refused() -> None:
    """A session on another database refuses to commit if it knows no earlier, and a connection to enqueue."""
    engine = create_engine("sqlite://")
    with _LateSession(engine) as late:
        QUEUE.enqueue(late, channel="a", payload=1)
        with pytest.raises(FairQueueError, match="speaks sqlite"):
            late.commit()
    with engine.connect() as connection, pytest.raises(FairQueueError, match="sqlite"):
        QUEUE.enqueue(connection, channel="a", payload=1)
    engine.dispose()
    assert not issubclass(FairQueueError, SQLAlchemyError)
