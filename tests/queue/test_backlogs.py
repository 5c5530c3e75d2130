"""Bounded backlogs, and enqueues that are refused: to a full channel, and of a duplicate that is to raise."""

from functools import partial
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelFull, ChannelPolicy, DuplicateMessage, Enqueue, FairQueueError, Queue
from sqlalchemy_fairqueue.errors import UnsentWork
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database


class Refusal(NamedTuple):
    """An error, what the enqueue says that gets it, and what the error tells."""

    error: type[FairQueueError]
    words: dict[str, Any]
    told: dict[str, object]


_DUPLICATE = {"channel": "a", "key": "k", "message_id": 1}


@pytest.fixture(
    params=[
        Refusal(DuplicateMessage, {"key": "k", "on_duplicate": "raise"}, _DUPLICATE),
        Refusal(ChannelFull, {}, {"channel": "a", "max_backlog": 1}),
    ],
    ids=["duplicate", "full"],
)
def refusal(request: pytest.FixtureRequest, queue: Queue, engine: Engine) -> Refusal:
    """Channel a is full, of a message with the key k."""
    queue.configure_channel(engine, "a", max_backlog=1)
    queue.enqueue(engine, channel="a", payload=1, key="k")
    found: Refusal = request.param
    return found


def _check(caught: pytest.ExceptionInfo[FairQueueError], refusal: Refusal) -> None:
    assert {name: getattr(caught.value, name) for name in refusal.told} == refusal.told


def test_by_a_commit(queue: Queue, engine: Engine, database: Database, refusal: Refusal) -> None:
    """The COMMIT fails whole and says why; after the rollback the session works on."""
    with Session(engine) as session:
        queue.enqueue(session, channel="other", payload=1)
        receipt = queue.enqueue(session, channel="a", payload=2, **refusal.words)
        with pytest.raises(refusal.error) as caught:
            session.commit()
        _check(caught, refusal)
        with pytest.raises(UnsentWork, match=refusal.error.__name__):
            session.commit()
        session.rollback()
        assert receipt.outcome is None
        queue.enqueue(session, channel="after", payload=1)
        session.commit()
    assert database.value("select string_agg(name, ' ' order by name) from fq_channel") == "a after"


async def test_at_once(
    queue: Queue, engine: Engine, async_engine: AsyncEngine, database: Database, refusal: Refusal
) -> None:
    """On an engine, a connection and that of a session, sync and async, it raises with nothing sent; the transaction
    goes on.
    """
    again: Any = partial(queue.enqueue, channel="a", payload=2, **refusal.words)
    with engine.connect() as connection:
        for where in (engine, connection):
            with pytest.raises(refusal.error) as caught:
                again(where)
            _check(caught, refusal)
        queue.enqueue(connection, channel="b", payload="connection")
        connection.commit()
    with Session(engine) as session:
        with pytest.raises(refusal.error):
            again(session.connection())
        queue.enqueue(session.connection(), channel="b", payload="session")
        session.commit()
    async with AsyncSession(async_engine) as asynchronous:
        with pytest.raises(refusal.error):
            await again(await asynchronous.connection())
        await queue.enqueue(await asynchronous.connection(), channel="b", payload="async session")
        await asynchronous.commit()
    assert database.value("select count(*) from fq_message") == 4


def _fill(queue: Queue, engine: Engine, number: int, channel: str = "a") -> list[str | None]:
    with Session(engine) as session:
        receipts = queue.enqueue_many(session, [Enqueue(channel=channel, payload=one) for one in range(number)])
        session.commit()
    return [receipt.outcome for receipt in receipts]


def test_drop(queue: Queue, engine: Engine, connect: Connect) -> None:
    """A channel that drops says so in the receipt, counts, and costs the transaction nothing else."""
    queue.configure_channel(engine, "a", ChannelPolicy(max_backlog=2, on_full="drop"))
    assert _fill(queue, engine, 3) == ["created", "created", "dropped"]
    with Session(engine) as session:
        dropped = queue.enqueue(session, channel="a", payload=1)
        kept = queue.enqueue(session, channel="b", payload=1)
        session.commit()
    assert (dropped.outcome, dropped.message_id, dropped.created) == ("dropped", None, False)
    assert kept.outcome == "created"
    assert queue.enqueue(engine, channel="a", payload=1).outcome == "dropped"
    connection = connect()
    assert queue.enqueue(connection, channel="a", payload=1).message_id is None
    connection.commit()
    [stats] = queue.channels(engine, "a")
    assert (stats.dropped, stats.ready, stats.max_backlog, stats.on_full) == (4, 2, 2, "drop")
    assert queue.stats(engine).dropped == 4


def test_defaults(engine: Engine) -> None:
    """The queue's own defaults bound the channels that it makes, unless the database has others."""
    queue = Queue("documents", defaults=ChannelPolicy(max_backlog=1, on_full="drop"))
    assert _fill(queue, engine, 1, "own") == ["created"]
    assert _fill(queue, engine, 1, "own") == ["dropped"]
    queue.configure(engine, defaults=ChannelPolicy(max_backlog=2))
    _fill(queue, engine, 2, "configured")
    with pytest.raises(ChannelFull):
        _fill(queue, engine, 1, "configured")
    queue.configure_channel(engine, "configured", ChannelPolicy())
    assert _fill(queue, engine, 5, "configured") == ["created"] * 5


def test_duplicates_need_no_room(queue: Queue, engine: Engine, connect: Connect) -> None:
    """A key that stands already is skipped or replaced in a full channel as in any other."""
    queue.configure_channel(engine, "a", ChannelPolicy(max_backlog=1))
    connection = connect()
    enqueue = partial(queue.enqueue, connection, channel="a", payload=1, key="k")
    first = enqueue().message_id
    assert enqueue().message_id == first
    assert enqueue(on_duplicate="replace").message_id == first
    connection.commit()


def test_a_replacement_counts_only_its_own_channel(queue: Queue, engine: Engine, database: Database) -> None:
    """What replaces a message that is out takes the last place, also if the same call adds to channels after it."""
    queue.configure_channel(engine, "a", ChannelPolicy(max_backlog=1))
    queue.enqueue(engine, channel="a", payload=1, key="k")
    assert len(queue.dequeue(engine)) == 1

    receipts = queue.enqueue_many(
        engine,
        [
            Enqueue(channel="a", payload=2, key="k", on_duplicate="replace"),
            Enqueue(channel="b", payload=3),
        ],
    )

    assert [receipt.outcome for receipt in receipts] == ["created", "created"]
    assert database.value("select count(*) from fq_message where lease_id is null") == 2
