"""enqueue_many on an engine and on a connection: many messages at once, all or none."""

from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event

from sqlalchemy_fairqueue import (
    ChannelFull,
    ChannelPolicy,
    DuplicateMessage,
    Enqueue,
    FairQueueError,
    PayloadError,
    Queue,
)
from sqlalchemy_fairqueue.errors import AutocommitError, LockOrderError
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits


def _messages(*numbers: int, channel: str = "a", **fields: Any) -> list[Enqueue]:
    return [Enqueue(channel=channel, payload=number, **fields) for number in numbers]


def _payloads(queue: Queue, engine: Engine) -> list[Any]:
    return [delivery.payload for delivery in queue.dequeue(engine, limit=1000)]


def test_one_statement_of_its_own(queue: Queue, engine: Engine) -> None:
    """All messages go in one statement, are committed when the call returns, and keep their order."""
    queue.enqueue_many(engine, _messages(0))
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
    receipts = queue.enqueue_many(engine, iter(_messages(*range(1, 101))))
    assert [("fq_enqueue" in statement) for statement in sent] == [True]
    assert [receipt.outcome for receipt in receipts] == ["created"] * 100
    assert _payloads(queue, engine) == list(range(101))


def test_receipts(queue: Queue, engine: Engine) -> None:
    """Each receipt says what became of its message: made, met a key, replaced, dropped."""
    queue.configure_channel(engine, "full", ChannelPolicy(max_backlog=1, on_full="drop"))
    [holder] = queue.enqueue_many(engine, _messages(1, channel="b", key="k"))
    messages = [
        *_messages(2, channel="c"),
        *_messages(3, channel="b", key="k"),
        *_messages(4, channel="b", key="k", on_duplicate="replace"),
        *_messages(5, 6, channel="full"),
    ]
    receipts = queue.enqueue_many(engine, messages)
    assert [one.outcome for one in receipts] == ["created", "duplicate", "replaced", "created", "dropped"]
    assert [one.channel for one in receipts] == ["c", "b", "b", "full", "full"]
    assert [one.message_id for one in receipts[1:3]] == [holder.message_id] * 2
    assert receipts[4].message_id is None
    assert sorted(_payloads(queue, engine)) == [2, 4, 5]


@pytest.mark.parametrize("where", ["engine", "connection"])
def test_all_or_none(queue: Queue, engine: Engine, database: Database, where: str) -> None:
    """A duplicate that is to raise, a full channel and a payload that cannot be encoded cost the whole call only."""
    queue.configure_channel(engine, "full", ChannelPolicy(max_backlog=1))
    queue.enqueue_many(engine, _messages(1, key="k"))
    refused: list[tuple[type[FairQueueError], list[Enqueue]]] = [
        (DuplicateMessage, _messages(2, key="k", on_duplicate="raise")),
        (ChannelFull, _messages(3, 4, channel="full")),
        (PayloadError, [Enqueue(channel="a", payload=object())]),
    ]
    with engine.connect() as connection:
        for error, last in refused:
            messages = [*_messages(5, 6), *last]
            with pytest.raises(error):
                queue.enqueue_many(engine if where == "engine" else connection, messages)
        if where == "connection":
            queue.enqueue_many(connection, _messages(7, 8))
            connection.commit()
    expected = [1] if where == "engine" else [1, 7, 8]
    assert _payloads(queue, engine) == expected
    assert database.value("select count(*) from fq_message") == len(expected)


@pytest.mark.parametrize("isolation", ["SERIALIZABLE", "AUTOCOMMIT"])
def test_isolation(queue: Queue, waits: Waits, connect: Connect, isolation: str) -> None:
    """The engine's own isolation does not matter, also where the call waits for another that has the key."""
    holder = connect()
    first = queue.enqueue(holder, channel="a", payload=1, key="k").message_id
    messages = _messages(2, key="k") + _messages(3)

    def enqueue(engine: Engine) -> list[tuple[int | None, str | None]]:
        receipts = queue.enqueue_many(engine.execution_options(isolation_level=isolation), messages)
        return [(one.message_id, one.outcome) for one in receipts]

    rival = waits.start(enqueue).blocked()
    holder.commit()
    met, added = rival.result()
    assert met == (first, "duplicate")
    assert added[1] == "created"


def test_on_a_connection(queue: Queue, engine: Engine, database: Database) -> None:
    """It is part of the connection's transaction, at once and in the lock order, and nothing without a transaction."""
    with engine.connect() as connection:
        [receipt] = queue.enqueue_many(connection, _messages(1, channel="b"))
        assert receipt.outcome == "created"
        connection.rollback()
        assert database.value("select count(*) from fq_message") == 0
        queue.enqueue_many(connection, _messages(1, 2, channel="b"))
        with pytest.raises(LockOrderError):
            queue.enqueue_many(connection, _messages(3, 4, channel="a"))
        connection.commit()
    assert _payloads(queue, engine) == [1, 2]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for messages in _messages(3), _messages(3, 4):
            with pytest.raises(AutocommitError):
                queue.enqueue_many(connection, messages)
    assert database.value("select count(*) from fq_message where lease_id is null") == 0


def test_in_opposite_orders(queue: Queue, engine: Engine, waits: Waits, connect: Connect) -> None:
    """Two calls with the same keys in opposite orders wait for each other, and never in a circle."""
    holder = connect()
    queue.enqueue(holder, channel="a", payload=0, key="0")
    keys = ["0", "1", "2", "3"]

    def enqueue(order: list[str], rival: Engine) -> list[str | None]:
        messages = [Enqueue(channel="a", payload=key, key=key) for key in order]
        return [one.outcome for one in queue.enqueue_many(rival, messages)]

    rivals = [waits.start(partial(enqueue, order)) for order in (keys, keys[::-1])]
    for rival in rivals:
        rival.blocked()
    holder.rollback()
    assert sorted(tuple(rival.result()) for rival in rivals) == [("created",) * 4, ("duplicate",) * 4]
    assert len(_payloads(queue, engine)) == 4
