"""An enqueue on an engine: a message in a transaction of its own."""

from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

from sqlalchemy_fairqueue import ChannelFull, ChannelPolicy, DuplicateMessage, Queue
from tests.fixtures.database import Database


def _count(database: Database) -> Any:
    return database.value("select count(*) from fq_message")


def test_committed_when_it_returns(queue: Queue, engine: Engine, database: Database) -> None:
    """The message is there, its id is told, and a key that stands gives the id of its holder."""
    first = queue.enqueue(engine, channel="a", payload=1, key="k").message_id
    assert database.value("select id from fq_message") == first
    assert queue.enqueue(engine, channel="a", payload=2, key="k").message_id == first
    assert [delivery.payload for delivery in queue.dequeue(engine, limit=10)] == [1]


def test_one_statement_that_commits_itself(queue: Queue, engine: Engine) -> None:
    """Nothing is sent before or after it, and the connection goes back as it was."""
    queue.enqueue(engine, channel="a", payload=1)
    sent: list[bool] = []

    def note(connection: Any, *_: object) -> None:
        sent.append(connection.connection.driver_connection.autocommit)

    event.listen(engine, "before_cursor_execute", note)
    queue.enqueue(engine, channel="a", payload=2)
    event.remove(engine, "before_cursor_execute", note)
    assert sent == [True]
    with engine.connect() as connection:
        assert not connection.connection.driver_connection.autocommit  # type: ignore[union-attr]


async def test_where(queue: Queue, database: Database, async_engine: AsyncEngine) -> None:
    """The engine's own isolation does not matter; on an async engine it is awaited under its other name."""
    for isolation in ("REPEATABLE READ", "SERIALIZABLE"):
        engine = create_engine(database.url, isolation_level=isolation, poolclass=NullPool)
        assert queue.enqueue(engine, channel="a", payload=1).message_id == database.value(
            "select max(id) from fq_message"
        )
    message_id = (await queue.enqueue(async_engine, channel="a", payload=1)).message_id
    assert message_id == database.value("select max(id) from fq_message")


def test_refused(queue: Queue, engine: Engine, database: Database) -> None:
    """What is refused adds nothing; what a full channel drops is counted."""
    queue.configure_channel(engine, "full", ChannelPolicy(max_backlog=1))
    queue.configure_channel(engine, "dropping", ChannelPolicy(max_backlog=1, on_full="drop"))
    for channel in "full", "dropping":
        assert queue.enqueue(engine, channel=channel, payload=1, key="k").message_id
    with pytest.raises(ChannelFull):
        queue.enqueue(engine, channel="full", payload=2)
    with pytest.raises(DuplicateMessage):
        queue.enqueue(engine, channel="full", payload=2, key="k", on_duplicate="raise")
    assert queue.enqueue(engine, channel="dropping", payload=2).message_id is None
    assert _count(database) == 2
    queue.dequeue(engine)
    assert {one.channel: one.dropped for one in queue.channels(engine)} == {"full": 0, "dropping": 1}
