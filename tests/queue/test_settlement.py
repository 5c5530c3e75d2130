"""Settlements on engines, connections and sessions, sync and async."""

from datetime import timedelta
from itertools import product

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import LeaseLost, Queue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.queue.seeds import seed

VERBS = ["complete", "retry", "release", "bury"]


def _left(database: Database) -> int:
    return int(database.value("select count(*) from fq_message where lease_id is not null"))


def test_engine(engine: Engine, database: Database) -> None:
    """On an engine the end is committed when the call returns; the error names those that are lost, and the others
    are settled.
    """
    for verb in VERBS:
        queue = Queue(verb)
        settle = getattr(queue, verb)
        seed(queue, engine, *"abc")
        batch = queue.dequeue(engine, limit=3)
        queue.complete(engine, batch[1])
        with pytest.raises(LeaseLost) as caught:
            settle(engine, batch)
        assert caught.value.message_ids == (batch[1].message_id,)
        assert _left(database) == 0
        assert [one.settled for one in batch] == [[verb], ["complete"], [verb]]
        with pytest.raises(LeaseLost) as caught:
            settle(engine, batch)
        assert caught.value.message_ids == tuple(sorted(one.message_id for one in batch))
        assert caught.value.holder is None


def test_asked_for_twice(engine: Engine, database: Database) -> None:
    """A delivery is settled once, as it was first asked for, and its attempt is recorded once."""
    for number, (verb, on_engine) in enumerate(product(VERBS, (True, False))):
        queue = Queue(f"documents {number}")
        queue.configure(engine, history=True)
        settle = getattr(queue, verb)
        seed(queue, engine, "a")
        [delivery] = queue.dequeue(engine)
        again = {"delay": timedelta(hours=1)} if verb in {"retry", "release"} else {}
        if on_engine:
            settle(engine, [delivery, delivery])
        else:
            with Session(engine) as session, session.begin():
                settle(session, delivery)
                settle(session, delivery, **again)
        assert database.value("select count(*) from fq_history") == number + 1
        assert _left(database) == 0
        assert database.value("select count(*) from fq_message where dequeue_at > fq_now()") == 0


async def test_async_places(engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """On an AsyncSession they record, to be sent by the awaited commit; awaited on an AsyncConnection they are one with
    its transaction. On an AsyncEngine they tell what is lost.
    """
    for verb in VERBS:
        queue = Queue(verb)
        seed(queue, engine, "a", "b")
        first, second = queue.dequeue(engine, limit=2)
        async with AsyncSession(async_engine) as session:
            getattr(queue, verb)(session, first)
            assert _left(database) == 2
            await session.commit()
        async with async_engine.begin() as connection:
            await getattr(queue, verb)(connection, second)
            assert _left(database) == 1
        assert _left(database) == 0
        with pytest.raises(LeaseLost):
            await getattr(queue, verb)(async_engine, [first, second])


def test_extend(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A lease lasts as long as it was extended to, is never shortened, and covers its whole batch."""
    seed(queue, engine, "a", "b")
    batch = queue.dequeue(engine, limit=2, lease=timedelta(seconds=30))
    expires_at = queue.extend(engine, batch[0], lease=timedelta(hours=1))
    assert queue.extend(engine, batch[1], lease=timedelta(seconds=1)) == expires_at
    clock.advance(timedelta(minutes=59))
    assert Queue("documents").dequeue(engine) == []
    queue.complete(engine, batch)


def test_extend_several(queue: Queue, engine: Engine) -> None:
    """Of several leases it tells the end that comes first: until then all of them are good."""
    seed(queue, engine, "a", "b")
    [long] = queue.dequeue(engine, lease=timedelta(hours=2))
    [short] = queue.dequeue(engine, lease=timedelta(seconds=30))
    soon = queue.extend(engine, short, lease=timedelta(minutes=10))
    assert queue.extend(engine, [long, short], lease=timedelta(seconds=1)) == soon < long.lease.expires_at


def test_an_earlier_hand_out(queue: Queue, engine: Engine) -> None:
    """A delivery of an earlier hand-out of the same message to the same consumer is lost."""
    seed(queue, engine, "a")
    [early] = queue.dequeue(engine)
    queue.release(engine, early)
    [late] = queue.dequeue(engine)
    assert (late.message_id, late.lease.id) == (early.message_id, early.lease.id)
    for verb in VERBS:
        with pytest.raises(LeaseLost) as caught:
            getattr(queue, verb)(engine, early)
        assert caught.value.holder == late.lease.consumer
    with pytest.raises(LeaseLost):
        queue.extend(engine, early)
    queue.complete(engine, late)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_connection_that_is_lost_is_told(database: Database, driver: str) -> None:
    """A verb on an engine raises the driver's error, also in a transaction that listeners have set up."""
    engine = create_engine(database.url.set(drivername=f"postgresql+{driver}"), pool_size=1, max_overflow=0)
    event.listen(engine, "begin", lambda _: None)
    queue = Queue("documents")
    seed(queue, engine, "a")
    [delivery] = queue.dequeue(engine)
    with engine.connect() as connection:
        pid = connection.scalar(text("select pg_backend_pid()"))
    database.execute("select pg_terminate_backend(:pid, 10000)", pid=pid)
    with pytest.raises(OperationalError) as caught:
        queue.complete(engine, delivery)
    assert caught.value.connection_invalidated
    queue.complete(engine, delivery)
    engine.dispose()
