"""Overloads of our functions that another role has planted in the schema of the queue: nothing calls them."""

from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelFull, ChannelPolicy, Delivery, Enqueue, Queue, Worker
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.planted import plant_overloads

_ACROSS = timedelta(hours=1)


@pytest.fixture
def planted(clock: Clock, database: Database) -> Clock:
    """A database in which every function has overloads that fit badly typed calls better."""
    plant_overloads(database)
    return clock


def test_every_verb(planted: Clock, engine: Engine, queue: Queue) -> None:
    """Producers, consumers and administrators call fairqueue's own functions alone."""
    queue.configure(engine, history=True, max_concurrency=50, defaults=ChannelPolicy(max_concurrency=9))
    queue.configure_channel(engine, "bounded", max_backlog=1)
    for number in range(2):
        queue.enqueue(engine, channel="a", payload=number, key="k", on_duplicate="replace")
    with Session(engine) as session:
        queue.enqueue_many(session, [Enqueue(channel=channel, payload=1) for channel in ("a", "b", "c", "d")])
        queue.enqueue(session, channel="b", payload=1, key="k", on_duplicate="replace")
        later = queue.enqueue(session, channel="later", payload=1, delay=_ACROSS)
        session.commit()
        queue.enqueue(engine, channel="bounded", payload=1)
        with pytest.raises(ChannelFull):
            queue.enqueue(engine, channel="bounded", payload=1)
        assert later.message_id is not None
        queue.cancel(session, later.message_id)
        session.commit()
    queue.pause(engine, "b")
    queue.resume(engine, "b")
    queue.pause(engine)
    queue.resume(engine)

    for limit in (1, 5):
        for settle in (
            partial(queue.complete, engine),
            partial(queue.retry, engine, error="again"),
            partial(queue.release, engine),
        ):
            found = queue.dequeue(engine, limit=limit)
            assert found
            queue.extend(engine, found, lease=_ACROSS)
            settle(found)
    queue.enqueue(engine, channel="a", payload=1)
    queue.bury(engine, queue.dequeue(engine, limit=9), reason="bad")
    assert queue.dead_letters.redrive(engine)
    assert queue.dequeue(engine, limit=9, lease=timedelta(seconds=1))
    planted.advance(_ACROSS)
    again = queue.dequeue(engine, limit=9)
    assert again
    queue.complete(engine, again[:1])
    queue.bury(engine, again[1:], reason="bad")
    queue.dead_letters.purge(engine)
    queue.enqueue(engine, channel="a", payload=1)
    assert queue.purge(engine, "a").purged == 1
    assert queue.stats(engine).dead == 0
    assert queue.channels(engine)


def test_a_worker(planted: Clock, engine: Engine, queue: Queue) -> None:
    """A worker handles, retries and keeps the history by fairqueue's own functions alone."""
    queue.configure(engine, history=True)
    handled: list[int] = []

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        session.connection()
        handled.append(delivery.message_id)

    queue.enqueue(engine, channel="a", payload=1, kind="parse")
    planted.advance(timedelta(seconds=1))
    Worker(engine, queue).run(drain=True)
    assert len(handled) == 1
