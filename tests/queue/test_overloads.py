"""Functions that another role has planted in a schema of the search_path, the queue's own: nothing calls them."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelFull, Delivery, Enqueue, Queue, RetryPolicy, Worker
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.planted import plant_overloads
from tests.queue.seeds import seed
from tests.queue.verbs import perform, verbs

_HOUR = timedelta(hours=1)


def _plant_convert_to(database: Database) -> None:
    database.execute(
        "create function public.convert_to(text, text) returns bytea"
        " language plpgsql as $$ begin raise exception 'trapped'; end $$"
    )


@pytest.fixture(params=[plant_overloads, pytest.param(_plant_convert_to, marks=pytest.mark.installed)])
def planted(request: pytest.FixtureRequest, clock: Clock, database: Database) -> Clock:
    """Functions of ours have overloads that fit badly typed calls better, or one of PostgreSQL's has."""
    request.param(database)
    return clock


def test_every_verb(planted: Clock, engine: Engine, queue: Queue, database: Database) -> None:
    """Producers, consumers and administrators call fairqueue's own functions, and PostgreSQL's, alone."""
    assert {verb for verb, _ in perform(Queue("every verb"), engine, database)} == verbs()
    queue.configure(engine, history=True, max_concurrency=50)
    queue.configure_channel(engine, "bounded", max_backlog=1)
    with Session(engine) as session, session.begin():
        queue.enqueue_many(session, [Enqueue(channel=name, payload=1) for name in "abcdefg"])
        for _ in range(2):
            queue.enqueue(session, channel="b", payload=1, key="k", on_duplicate="replace")
        queue.enqueue(session, channel="bounded", payload=1)
        queue.pause(session, "new")
        queue.enqueue(session, channel="new", payload=1)
        queue.cancel(session, 1)
    with pytest.raises(ChannelFull):
        queue.enqueue(engine, channel="bounded", payload=1)
    settle: Any
    for limit, settle in product((1, 5), (queue.release, queue.complete, queue.retry)):
        found = queue.dequeue(engine, limit=limit)
        queue.extend(engine, found, lease=_HOUR)
        settle(engine, found)
    seed(queue, engine, *"xyz")
    assert queue.dequeue(engine, limit=9, lease=timedelta(seconds=1))
    planted.advance(_HOUR)
    again = queue.dequeue(engine, limit=9)
    assert len(again) >= 3
    queue.complete(engine, again)


def test_a_worker(planted: Clock, engine: Engine, queue: Queue) -> None:
    """So does a worker, with all that it does beside its handlers."""
    queue.configure(engine, history=True)
    handled: list[int] = []

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        session.connection()
        handled.append(delivery.message_id)

    @queue.handler("bad")
    def fail(_: object) -> None:
        raise ValueError

    for kind in ("parse", "bad"):
        queue.enqueue(engine, channel=kind, payload=1, kind=kind)
    planted.advance(timedelta(seconds=1))
    Worker(engine, queue, retry=RetryPolicy(max_attempts=1)).run(drain=True)
    assert len(handled) == 1
    assert [letter.channel for letter in queue.dead_letters.list(engine)] == ["bad"]
