"""A commit whose queue work fails, fails whole; after a rollback the session is usable again."""

from contextlib import suppress
from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, LeaseLost, Queue, SchemaMismatch
from sqlalchemy_fairqueue.errors import UnsentWork
from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, taken


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
    assert taken(database) == (["kept"], ["kept"])


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
        deliveries = QUEUE.dequeue(engine, limit=5)
        QUEUE.cancel(session, receipts[-1].message_id or 0)
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
    """A delivery that one transaction both completes and retries fails the commit rather than choose; a begin block
    rolls back by itself, and leaves the session usable.
    """
    delivery = _delivered(engine)
    with Session(engine) as session:
        with suppress(LeaseLost), session.begin():
            session.add(Upload(name="lost"))
            QUEUE.complete(session, delivery)
            QUEUE.retry(session, delivery)
        with session.begin():
            session.add(Upload(name="kept"))
    assert taken(database) == (["alice"], ["kept"])


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
    assert taken(database) == (["kept"], ["same"])
