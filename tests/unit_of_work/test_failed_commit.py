"""A commit whose queue work fails, fails whole; after a rollback the session is usable again."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, FairQueueError, LeaseLost, Queue, SchemaMismatch
from sqlalchemy_fairqueue.errors import UnsentWork
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, taken, uploads


def _delivered(engine: Engine, channel: str = "alice") -> Delivery:
    with Session(engine) as session:
        QUEUE.enqueue(session, channel=channel, payload=1)
        session.commit()
    [delivery] = QUEUE.dequeue(engine)
    return delivery


def test_second_commit_is_refused(engine: Engine, database: Database) -> None:
    """After a failed sending only a rollback is possible: a second commit says so and why, and commits nothing."""
    with Session(engine) as session:
        session.add(Upload(name="lost"))
        Queue("documents", schema="nowhere").enqueue(session, channel="lost", payload=1)
        QUEUE.enqueue(session, channel="lost", payload=1)
        with pytest.raises(SchemaMismatch, match="nowhere"):
            session.commit()
        with pytest.raises(UnsentWork, match=r"SchemaMismatch: .*nowhere.*; roll the transaction back"):
            session.commit()
        session.rollback()
        session.add(Upload(name="kept"))
        QUEUE.enqueue(session, channel="kept", payload=1)
        session.commit()
    assert (uploads(database), channels(database)) == (["kept"], ["kept"])


def test_second_commit_without_an_engine() -> None:
    """So it is where the work could not even get a connection, for the session is bound to none."""
    with Session() as session:
        QUEUE.enqueue(session, channel="lost", payload=1)
        with pytest.raises(FairQueueError, match="no engine for queue"):
            session.commit()
        with pytest.raises(UnsentWork, match=r"no engine for queue .*; roll the transaction back"):
            session.commit()


def test_lost_lease_rolls_back_the_business_writes(engine: Engine, database: Database, clock: Clock) -> None:
    """A commit that carries a completion whose lease was lost fails whole, and names the message and its holder."""
    delivery = _delivered(engine)
    clock.advance(timedelta(minutes=5))
    rival = Queue("documents")
    [theirs] = rival.dequeue(engine)
    with Session(engine) as session:
        session.add(Upload(name="lost"))
        QUEUE.enqueue(session, channel="follow-up", payload=1)
        QUEUE.complete(session, delivery)
        with pytest.raises(LeaseLost, match="stop working on it") as caught:
            session.commit()
        assert caught.value.message_ids == (delivery.message_id,)
        assert caught.value.lease_id == delivery.lease.id
        assert caught.value.expired_at == delivery.lease.expires_at
        assert caught.value.holder == theirs.lease.consumer
        session.rollback()
        session.commit()
    assert uploads(database) == []
    assert channels(database) == ["alice"]
    rival.complete(engine, theirs)
    assert channels(database) == []


def test_begin_block_rolls_back_by_itself(engine: Engine, database: Database) -> None:
    """A begin block whose commit loses a lease rolls back and leaves the session usable."""
    delivery = _delivered(engine)
    QUEUE.complete(engine, delivery)
    session = Session(engine)

    def work() -> None:
        with session.begin():
            session.add(Upload(name="lost"))
            QUEUE.complete(session, delivery)

    with pytest.raises(LeaseLost):
        work()
    with session.begin():
        session.add(Upload(name="kept"))
    assert uploads(database) == ["kept"]


def test_settling_and_follow_up(engine: Engine, database: Database) -> None:
    """The end of a delivery, a business row and a follow-up message are one commit, or one rollback."""
    for verb in ("complete", "retry", "release", "bury"):
        delivery = _delivered(engine, "z")
        with Session(engine) as session:
            for end in (session.rollback, session.commit):
                getattr(QUEUE, verb)(session, delivery)
                QUEUE.enqueue(session, channel="a", payload=2)
                session.add(Upload(name="done"))
                end()
        assert taken(database) == (["a"] if verb in {"complete", "bury"} else ["z", "a"], ["done"]), verb


def test_all_verbs_in_one_session(engine: Engine, database: Database) -> None:
    """Enqueue, configure, each way to end a delivery and cancel go together in one commit."""
    with Session(engine) as session:
        receipts = [QUEUE.enqueue(session, channel="a", payload=number) for number in range(6)]
        session.commit()
        *_, spare = (receipt.message_id for receipt in receipts)
        assert spare is not None
        deliveries = QUEUE.dequeue(engine, limit=5)
        QUEUE.cancel(session, spare)
        QUEUE.bury(session, deliveries[4], reason="odd", error="no words")
        QUEUE.retry(session, deliveries[3], delay=timedelta(days=1), error="later")
        QUEUE.release(session, deliveries[2])
        QUEUE.complete(session, deliveries[:2])
        QUEUE.configure_channel(session, "b", QUEUE.defaults)
        QUEUE.configure(session, defaults=QUEUE.defaults)
        QUEUE.enqueue(session, channel="c", payload=1)
        session.commit()
    assert channels(database) == ["a", "a", "c"]
    assert database.value("select reason from fq_dead_letter") == "odd"
    assert [one.payload for one in QUEUE.dequeue(engine, limit=10)] == [2, 1]


def test_one_delivery_in_two_ways(engine: Engine, database: Database) -> None:
    """A delivery that one transaction both completes and retries fails the commit rather than choose."""
    delivery = _delivered(engine)
    with Session(engine) as session:
        QUEUE.complete(session, delivery)
        QUEUE.retry(session, delivery)
        with pytest.raises(LeaseLost):
            session.commit()
    assert channels(database) == ["alice"]


def test_flush_that_failed_is_named(engine: Engine, database: Database) -> None:
    """After a flush whose error was caught, queue work is refused with that error, in words and as the cause."""
    with Session(engine) as session:
        session.add(Upload(name="same"))
        session.commit()
        session.begin_nested()
        session.add(Upload(name="same"))
        with pytest.raises(IntegrityError) as flushed:
            session.flush()
        with pytest.raises(UnsentWork, match=r"IntegrityError: .*upload_name_key.*; .*begin_nested\(\)") as refused:
            QUEUE.enqueue(session, channel="lost", payload=1)
        assert refused.value.__cause__ is flushed.value
        session.rollback()
        QUEUE.enqueue(session, channel="kept", payload=1)
        session.commit()
    assert (uploads(database), channels(database)) == (["same"], ["kept"])


def test_connection_lost_while_sending(engine: Engine, database: Database) -> None:
    """A connection that breaks before the sending costs this commit only."""
    with Session(engine) as session:
        session.add(Upload(name="lost"))
        session.flush()
        QUEUE.enqueue(session, channel="lost", payload=1)
        pid = session.scalar(text("select pg_backend_pid()"))
        database.execute("select pg_terminate_backend(:pid)", pid=pid)
        with pytest.raises(Exception, match=r"terminat|closed"):
            session.commit()
        session.rollback()
        QUEUE.enqueue(session, channel="kept", payload=1)
        session.commit()
    assert (uploads(database), channels(database)) == ([], ["kept"])


async def test_async_lost_lease(async_session_factory: async_sessionmaker[AsyncSession], engine: Engine) -> None:
    """On an AsyncSession too the lost lease fails the commit, and a rollback makes the session usable."""
    delivery = _delivered(engine)
    QUEUE.complete(engine, delivery)
    async with async_session_factory() as session:
        QUEUE.complete(session, delivery)
        with pytest.raises(LeaseLost):
            await session.commit()
        with pytest.raises(UnsentWork):
            await session.commit()
        await session.rollback()
        await session.commit()
