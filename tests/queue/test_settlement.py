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
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database

VERBS = ["complete", "retry", "release", "bury"]


def _seed(queue: Queue, engine: Engine, *names: str) -> None:
    with Session(engine) as session:
        for name in names:
            queue.enqueue(session, channel=name, payload=name)
        session.commit()


def _left(database: Database) -> int:
    return int(database.value("select count(*) from fq_message where lease_id is not null"))


def _empty(queue: Queue, engine: Engine) -> None:
    """Purge what a verb has given back, so that the next one begins anew."""
    for one in queue.channels(engine):
        queue.purge(engine, one.channel)


def test_engine(queue: Queue, engine: Engine, database: Database) -> None:
    """On an engine the end is committed when the call returns; the error names those that are lost, and the others
    are settled.
    """
    for verb in VERBS:
        settle = getattr(queue, verb)
        _seed(queue, engine, *"abc")
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
        _empty(queue, engine)


def test_asked_for_twice(queue: Queue, engine: Engine, database: Database) -> None:
    """A delivery is settled once, as it was first asked for, and its attempt is recorded once."""
    queue.configure(engine, history=True)
    for number, (verb, on_engine) in enumerate(product(VERBS, (True, False))):
        settle = getattr(queue, verb)
        _seed(queue, engine, "a")
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
        _empty(queue, engine)


def test_connection(queue: Queue, engine: Engine, connect: Connect, database: Database) -> None:
    """On a connection the end is one with its transaction."""
    for verb in VERBS:
        _seed(queue, engine, "a")
        delivery = queue.dequeue(engine)
        connection = connect()
        getattr(queue, verb)(connection, delivery)
        assert _left(database) == 1
        connection.rollback()
        assert _left(database) == 1
        getattr(queue, verb)(connection, delivery)
        connection.commit()
        assert _left(database) == 0
        _empty(queue, engine)


async def test_aextend_leaves_the_lease(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """What is dequeued after an extension has a lease of its own: it was not asked for as long."""
    _seed(queue, engine, "a", "b")
    [first] = await queue.dequeue(async_engine)
    await queue.extend(async_engine, first, lease=timedelta(hours=1))
    [second] = await queue.dequeue(async_engine)
    assert second.lease.id != first.lease.id


async def test_async_places(queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database) -> None:
    """On an AsyncSession they record, to be sent by the awaited commit; awaited on an AsyncConnection they are one with
    its transaction. On an AsyncEngine they tell what is lost.
    """
    for verb in VERBS:
        _seed(queue, engine, "a", "b")
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
        _empty(queue, engine)


def test_late_completion(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """A completion after the lease ended counts as long as nobody took the message back; an extension does not."""
    _seed(queue, engine, "a")
    [delivery] = queue.dequeue(engine)
    clock.advance(timedelta(hours=1))
    with pytest.raises(LeaseLost):
        queue.extend(engine, delivery)
    queue.complete(engine, delivery)
    assert database.value("select count(*) from fq_message") == 0


def test_extend(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A lease lasts as long as it was extended to, is never shortened, and covers its whole batch."""
    _seed(queue, engine, "a", "b")
    batch = queue.dequeue(engine, limit=2, lease=timedelta(seconds=30))
    expires_at = queue.extend(engine, batch[0], lease=timedelta(hours=1))
    assert queue.extend(engine, batch[1], lease=timedelta(seconds=1)) == expires_at
    clock.advance(timedelta(minutes=59))
    assert Queue("documents").dequeue(engine) == []
    queue.complete(engine, batch)


def test_extend_several(queue: Queue, engine: Engine) -> None:
    """Of several leases it tells the end that comes first: until then all of them are good."""
    _seed(queue, engine, "a", "b")
    [long] = queue.dequeue(engine, lease=timedelta(hours=2))
    [short] = queue.dequeue(engine, lease=timedelta(seconds=30))
    soon = queue.extend(engine, short, lease=timedelta(minutes=10))
    assert queue.extend(engine, [long, short], lease=timedelta(seconds=1)) == soon < long.lease.expires_at


def test_an_earlier_hand_out(queue: Queue, engine: Engine) -> None:
    """A delivery of an earlier hand-out of the same message to the same consumer is lost."""
    _seed(queue, engine, "a")
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
    _seed(queue, engine, "a")
    [delivery] = queue.dequeue(engine)
    with engine.connect() as connection:
        pid = connection.scalar(text("select pg_backend_pid()"))
    database.execute("select pg_terminate_backend(:pid, 10000)", pid=pid)
    with pytest.raises(OperationalError) as caught:
        queue.complete(engine, delivery)
    assert caught.value.connection_invalidated
    queue.complete(engine, delivery)
    engine.dispose()
