"""Assertions about what a session has enqueued."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import InvalidArgument, Queue
from sqlalchemy_fairqueue.testing import all_enqueued, assert_enqueued, refute_enqueued
from tests.fixtures.database import Database


def _business(queue: Queue, session: Session) -> None:
    queue.enqueue(session, channel="customer-7", payload={"upload": "a", "pages": (1, 2)}, kind="parse", key="a")
    queue.enqueue(session, channel="customer-9", payload={"upload": "b"}, kind="parse", headers={"trace": "x", "n": 1})


@pytest.mark.parametrize("sent", [False, True], ids=["recorded", "sent"])
def test_before_and_after_a_commit(queue: Queue, session: Session, database: Database, *, sent: bool) -> None:
    """Messages are found while they are recorded, which sends none of them, and once the session has; the test then
    rolls back.
    """
    _business(queue, session)
    if sent:
        session.commit()
    [message] = assert_enqueued(session, queue, channel="customer-7", kind="parse", key="a")
    assert (message.payload, message.headers) == ({"upload": "a", "pages": [1, 2]}, None)
    assert len(assert_enqueued(session, queue, kind="parse")) == 2
    assert_enqueued(session, queue, kind="parse", count=2)
    assert_enqueued(session, queue, payload={"pages": (1, 2)}, count=1)
    assert_enqueued(session, queue, headers={"trace": "x"}, max_attempts=20, count=1)
    refute_enqueued(session, queue, kind="call")
    refute_enqueued(session, queue, payload={"upload": "c"})
    refute_enqueued(session, Queue("other"))
    assert [one.message_id is not None for one in all_enqueued(session, queue)] == [sent, sent]
    assert database.value("select count(*) from fq_message") == 0


def test_a_rollback(queue: Queue, session: Session) -> None:
    """What a savepoint or the transaction rolls back was not enqueued."""
    _business(queue, session)
    with session.begin_nested() as savepoint:
        queue.enqueue(session, channel="c", payload=1)
        assert_enqueued(session, queue, count=3)
        savepoint.rollback()
    assert_enqueued(session, queue, count=2)
    session.rollback()
    refute_enqueued(session, queue)


def test_periods(queue: Queue, session: Session) -> None:
    """Messages tell for how long their keys are unique, recorded and sent."""
    hour = timedelta(hours=1)
    queue.enqueue(session.connection(), channel="a", payload="sent", key="k", unique_for=hour)
    queue.enqueue(session, channel="a", payload="recorded", key="l", unique_for=hour, unique_from="completion")
    queue.enqueue(session, channel="a", payload="plain", key="m")
    assert_enqueued(session, queue, unique_for=hour, payload="sent", count=1)
    assert_enqueued(session, queue, unique_for=hour, payload="recorded", count=1)
    assert_enqueued(session, queue, unique_for=None, count=1)
    queue.admin.move(session, queue.messages(session.connection(), channel="a")[0].message_id, "b")
    assert_enqueued(session, queue, channel="b", unique_for=hour, count=1)


def test_when(queue: Queue, session: Session) -> None:
    """Scheduled messages tell when they are due; others nothing."""
    at = datetime.now(UTC) + timedelta(days=1)
    queue.enqueue(session, channel="a", payload=1, at=at)
    queue.enqueue(session, channel="a", payload=2)
    queue.enqueue(session, channel="a", payload=3, priority=5)
    assert_enqueued(session, queue, at=at, count=1)
    session.commit()
    assert_enqueued(session, queue, at=at, count=1)
    assert_enqueued(session, queue, at=None, count=2)


def test_delivered_messages(queue: Queue, engine: Engine) -> None:
    """What a consumer holds is not waiting any more."""
    queue.enqueue(engine, channel="a", payload=1)
    with Session(engine) as session:
        assert_enqueued(session, queue, count=1)
        session.rollback()
        queue.dequeue(engine)
        refute_enqueued(session, queue)


def test_another_schema(session: Session) -> None:
    """A queue of another schema has its own messages."""
    elsewhere = Queue("documents", schema="public")
    elsewhere.enqueue(session, channel="a", payload=1)
    assert_enqueued(session, elsewhere, count=1)
    session.commit()
    assert_enqueued(session, elsewhere, count=1)


def test_failures_tell_what_there_is(queue: Queue, session: Session) -> None:
    """A failed assertion says what was wanted and what was enqueued."""
    with pytest.raises(AssertionError, match="'documents' with kind='parse'"):
        assert_enqueued(session, queue, kind="parse")
    _business(queue, session)
    with pytest.raises(AssertionError, match=r"payload=\{'upload': 'z'\}") as other:
        assert_enqueued(session, queue, kind="parse", payload={"upload": "z"})
    assert "channel 'customer-7', kind 'parse', payload {'upload': 'a', 'pages': [1, 2]}" in str(other.value)
    with pytest.raises(AssertionError, match="2 messages of queue 'documents' with kind='parse'"):
        assert_enqueued(session, queue, kind="parse", count=1)
    with pytest.raises(AssertionError, match="channel='customer-9'"):
        refute_enqueued(session, queue, channel="customer-9")


def test_bad_questions(queue: Queue, engine: Engine, session: Session) -> None:
    """A name that messages do not have is refused, and what is no session."""
    with pytest.raises(InvalidArgument, match="messages have no 'chanel'; ask for channel, kind"):
        all_enqueued(session, queue, chanel="a")
    with pytest.raises(InvalidArgument, match="session is Engine"):
        all_enqueued(engine, queue)  # type: ignore[call-overload]


async def test_async_sessions(queue: Queue, async_session: AsyncSession) -> None:
    """The awaited twins ask an AsyncSession."""
    queue.enqueue(async_session, channel="a", payload=1)
    await assert_enqueued(async_session, queue, channel="a", count=1)
    await refute_enqueued(async_session, queue, channel="b")
    await async_session.commit()
    [message] = await all_enqueued(async_session, queue)
    assert message.message_id is not None
