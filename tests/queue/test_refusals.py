"""Enqueues that are refused: of a duplicate that is to raise, and to a full channel."""

from functools import partial
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelFull, DuplicateMessage, FairQueueError, Queue
from sqlalchemy_fairqueue.errors import UnsentWork
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
