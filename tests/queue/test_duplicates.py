"""Duplicate policies: an enqueue whose key is taken skips, raises or replaces."""

from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import DuplicateMessage, Enqueue, Queue, Receipt
from sqlalchemy_fairqueue.errors import UnsentWork
from sqlalchemy_fairqueue.values.messages import OnDuplicate
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits


def _enqueue(
    queue: Queue,
    engine: Engine,
    payload: object,
    on_duplicate: OnDuplicate = "skip",
    delay: timedelta | None = None,
) -> Receipt:
    with Session(engine) as session:
        receipt = queue.enqueue(session, channel="a", payload=payload, key="k", on_duplicate=on_duplicate, delay=delay)
        session.commit()
    return receipt


def test_outcomes(queue: Queue, engine: Engine) -> None:
    """A receipt tells what became of its message, once the transaction has committed."""
    with Session(engine) as session:
        first = queue.enqueue(session, channel="a", payload=1, key="k")
        assert first.outcome is None
        session.commit()
    second = _enqueue(queue, engine, 2)
    third = _enqueue(queue, engine, 3, "replace")
    assert [(one.outcome, one.created) for one in (first, second, third)] == [
        ("created", True),
        ("duplicate", False),
        ("replaced", False),
    ]
    assert first.message_id == second.message_id == third.message_id


def test_replace_rewrites(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A replaced message has the new content, kind, headers, time and attempts, and its old id and enqueued_at."""
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload="old", key="k", kind="old", max_attempts=2, headers={"old": 1})
        session.commit()
    [delivery] = queue.dequeue(engine)
    queue.retry(engine, delivery, error="once")
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload="new", key="k", kind="new", max_attempts=5, on_duplicate="replace")
        session.commit()
    clock.advance(timedelta(seconds=1))
    [again] = queue.dequeue(engine)
    assert (again.message_id, again.enqueued_at) == (delivery.message_id, delivery.enqueued_at)
    assert (again.payload, again.kind, again.headers) == ("new", "new", None)
    assert (again.attempt, again.max_attempts) == (1, 5)


def test_debounce(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Enqueued again and again with a delay, a message comes once, that long after the last time."""
    for number in range(3):
        _enqueue(queue, engine, number, "replace", timedelta(hours=1))
        clock.advance(timedelta(minutes=40))
        assert queue.dequeue(engine) == []
    clock.advance(timedelta(minutes=20))
    [delivery] = queue.dequeue(engine, limit=10)
    assert delivery.payload == 2


def test_replace_of_one_that_is_out(queue: Queue, engine: Engine) -> None:
    """A message that a consumer holds loses the key, and the new one is added."""
    first = _enqueue(queue, engine, "out")
    [delivery] = queue.dequeue(engine)
    second = _enqueue(queue, engine, "new", "replace")
    assert (second.outcome, second.message_id != first.message_id) == ("created", True)
    queue.retry(engine, delivery)
    assert sorted(one.payload for one in queue.dequeue(engine, limit=10)) == ["new", "out"]


def test_raise_from_a_commit(queue: Queue, engine: Engine, database: Database) -> None:
    """A recorded enqueue that is to raise fails the COMMIT whole; after the rollback the session works on."""
    first = _enqueue(queue, engine, 1)
    with Session(engine) as session:
        queue.enqueue(session, channel="other", payload=1)
        receipt = queue.enqueue(session, channel="a", payload=2, key="k", on_duplicate="raise")
        with pytest.raises(DuplicateMessage) as caught:
            session.commit()
        assert (caught.value.channel, caught.value.key, caught.value.message_id) == ("a", "k", first.message_id)
        with pytest.raises(UnsentWork, match="DuplicateMessage"):
            session.commit()
        session.rollback()
        assert receipt.outcome is None
        queue.enqueue(session, channel="after", payload=1)
        session.commit()
    assert database.value("select string_agg(name, ' ' order by name) from fq_channel") == "a after"


async def test_raise_at_once(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, connect: Connect, database: Database
) -> None:
    """On a connection, also that of a session, sync and async, it raises with nothing sent; the transaction goes on."""
    again = partial(queue.enqueue, channel="a", payload=2, key="k", on_duplicate="raise")
    connection = connect()
    first = again(connection).message_id
    connection.commit()
    with pytest.raises(DuplicateMessage, match=f"message {first} holds it"):
        again(connection)
    queue.enqueue(connection, channel="b", payload="connection")
    connection.commit()
    with Session(engine) as session:
        with pytest.raises(DuplicateMessage):
            again(session.connection())
        queue.enqueue(session.connection(), channel="b", payload="session")
        session.commit()
    async with AsyncSession(async_engine) as asynchronous:
        with pytest.raises(DuplicateMessage):
            await queue.enqueue(await asynchronous.connection(), channel="a", payload=2, key="k", on_duplicate="raise")
        await queue.enqueue(await asynchronous.connection(), channel="b", payload="async session")
        await asynchronous.commit()
    assert database.value("select count(*) from fq_message") == 4


def test_mixed_policies(queue: Queue, engine: Engine) -> None:
    """Messages of one batch have each their own policy, in the order in which they were given."""
    one = partial(Enqueue, channel="a", key="k")
    with Session(engine) as session:
        receipts = queue.enqueue_many(
            session,
            [
                one(payload=1),
                one(payload=2),
                one(payload=3, on_duplicate="replace"),
                one(payload=4, key="other", on_duplicate="raise"),
                Enqueue(channel="a", payload=5),
            ],
        )
        session.commit()
    assert [receipt.outcome for receipt in receipts] == ["created", "duplicate", "replaced", "created", "created"]
    assert sorted(delivery.payload for delivery in queue.dequeue(engine, limit=10)) == [3, 4, 5]


def test_a_free_key_raises_nothing(queue: Queue, engine: Engine) -> None:
    """Once the message that held the key is done, an enqueue that would raise adds."""
    first = _enqueue(queue, engine, 1, "raise")
    queue.complete(engine, queue.dequeue(engine))
    second = _enqueue(queue, engine, 2, "raise")
    assert second.outcome == "created"
    assert second.message_id != first.message_id


def test_replacing_and_settling_wait_for_nobody_in_a_circle(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits
) -> None:
    """A transaction that replaces and completes takes all its messages in one order, so that two of them just wait."""
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload="low")
        queue.enqueue(session, channel="b", payload="high", key="k")
        session.commit()
    [low] = queue.dequeue(engine)
    assert low.payload == "low"
    holder = connect()
    queue.complete(holder, low)

    def replace_and_complete(rival: Engine) -> str | None:
        with Session(rival) as session:
            receipt = queue.enqueue(session, channel="b", payload="new", key="k", on_duplicate="replace")
            queue.cancel(session, low.message_id)
            session.commit()
        return receipt.outcome

    def lock_the_other(third: Engine) -> None:
        with third.begin() as connection:
            connection.exec_driver_sql("select from fq_message where key = 'k' for update")

    rival = waits.start(replace_and_complete).blocked()
    # It waits for the lower id and has not yet locked the higher one.
    waits.unhindered(lock_the_other)
    holder.commit()
    assert rival.result() == "replaced"
