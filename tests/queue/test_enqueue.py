"""Values that enqueues store, the receipts that they return, and those on an engine or a connection: at once."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import (
    BytesCodec,
    ChannelFull,
    ChannelPolicy,
    DuplicateMessage,
    Enqueue,
    FairQueueError,
    InvalidArgument,
    PayloadError,
    Queue,
    Receipt,
)
from sqlalchemy_fairqueue.errors import AutocommitError, LockOrderError
from tests.factories import EnqueueFactory
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits


def _payloads(queue: Queue, engine: Engine) -> list[Any]:
    return [delivery.payload for delivery in queue.dequeue(engine, limit=1000)]


def test_everything_arrives(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A delivery has what was enqueued, and true times."""
    before = clock.now()
    with Session(engine) as session:
        queue.enqueue(
            session,
            channel="alice",
            payload={"é": [1, None]},
            kind="parse",
            headers={"trace": {"id": 7}},
            max_attempts=3,
        )
        session.commit()
    [delivery] = queue.dequeue(engine, lease=timedelta(minutes=1))
    assert (delivery.queue, delivery.channel, delivery.kind) == ("documents", "alice", "parse")
    assert (delivery.payload, delivery.headers) == ({"é": [1, None]}, {"trace": {"id": 7}})
    assert (delivery.attempt, delivery.max_attempts, delivery.deliveries) == (1, 3, 1)
    assert before <= delivery.enqueued_at <= clock.now()
    assert delivery.enqueued_at.tzinfo is UTC
    assert delivery.lease.expires_at >= before + timedelta(minutes=1)


def test_receipts(queue: Queue, engine: Engine, database: Database) -> None:
    """A receipt knows its message once the transaction has committed, not before and not without."""
    messages = EnqueueFactory.build_batch(3)
    with Session(engine) as session:
        kept = queue.enqueue_many(session, messages)
        session.flush()
        assert [receipt.message_id for receipt in kept] == [None] * 3
        assert [receipt.created for receipt in kept] == [None] * 3
        session.commit()
        lost = queue.enqueue(session, channel="a", payload=1)
        session.rollback()
        session.commit()
    rows = database.rows(
        "select id, convert_from(content, 'UTF8')::jsonb ->> 'upload' as upload from fq_message order by id"
    )
    assert [receipt.message_id for receipt in kept] == [row.id for row in rows]
    assert [row.upload for row in rows] == [message.payload["upload"] for message in messages]
    assert all(receipt.created for receipt in kept)
    assert (lost.message_id, lost.created) == (None, None)
    assert isinstance(lost, Receipt)


def test_alone_as_among_others(queue: Queue, engine: Engine, database: Database) -> None:
    """A message that is sent alone leaves the same as one that is sent with others, whatever its texts are."""
    odd = ["NULL", "null", "{}", '"', "\\", "a,b", " ", "ä", "'; --", "%s", ":x"]
    at = datetime(2101, 1, 1, tzinfo=UTC)
    hows: list[dict[str, Any]] = [{}, {"delay": timedelta(hours=1)}, {"at": at}, {"priority": 7}]
    with Session(engine) as session:
        for number, text in enumerate(odd):
            how = hows[number % len(hows)]
            same: dict[str, Any] = {"payload": [text], "kind": text, "key": text, "headers": {text: 1}} | how
            queue.enqueue(session, channel=f"{text}1", max_attempts=3, **same)
            session.commit()
            queue.enqueue(session, channel=f"{text}2", max_attempts=3, **same)
            queue.enqueue(session, channel="another", payload=1)
            session.commit()
    # Those of one call are a microsecond apart.
    rows = database.rows("""
        select m.kind, m.content, m.headers, m.key, m.max_attempts,
          case when abs(dequeue_at - enqueued_at) < 4e9 then (dequeue_at - enqueued_at) / 1000 else dequeue_at end
        from fq_message m join fq_channel c on c.id = m.channel_id where c.name <> 'another' order by m.id
    """)
    assert rows[::2] == rows[1::2]
    assert [(row.kind, row.key, row.headers) for row in rows[::2]] == [(text, text, {text: 1}) for text in odd]


def test_the_payload_is_taken_at_the_call(queue: Queue, engine: Engine) -> None:
    """What happens to the payload or the headers after the call does not count."""
    payload, headers = {"a": [1]}, {"h": [1]}
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=payload, headers=headers)
        payload["a"].append(2)
        headers["h"].append(2)
        session.commit()
    [delivery] = queue.dequeue(engine)
    assert (delivery.payload, delivery.headers) == ({"a": [1]}, {"h": [1]})


def test_order_of_a_channel(queue: Queue, engine: Engine) -> None:
    """Messages of a channel come as they were recorded, across calls and savepoints; prioritised ones before them."""
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        with session.begin_nested():
            queue.enqueue(session, channel="a", payload=2)
        queue.enqueue_many(session, [EnqueueFactory.build(channel="a", payload=number) for number in (3, 4)])
        queue.enqueue(session, channel="a", payload="low", priority=1)
        queue.enqueue(session, channel="a", payload="high", priority=2**31 - 1)
        queue.enqueue(session, channel="a", payload="past", at=datetime(2000, 1, 1, tzinfo=UTC))
        session.commit()
    assert _payloads(queue, engine) == ["high", "low", 1, 2, 3, 4, "past"]


def test_later(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Delayed and scheduled messages come when they are due, and due_in says when to poll."""
    queue.enqueue(engine, channel="a", payload="delay", delay=timedelta(hours=1))
    queue.enqueue(engine, channel="b", payload="at", at=clock.now() + timedelta(hours=2))
    batch = queue.dequeue(engine)
    assert batch == []
    assert batch.due_in is not None
    assert timedelta(minutes=59) < batch.due_in <= timedelta(hours=1)
    clock.advance(timedelta(hours=1))
    [delivery] = queue.dequeue(engine, limit=10)
    assert delivery.payload == "delay"
    queue.complete(engine, delivery)
    clock.advance(timedelta(hours=1))
    assert _payloads(queue, engine) == ["at"]


def test_names_that_an_array_could_misread(engine: Engine) -> None:
    """Many messages in one statement keep their channels, kinds and keys of any characters."""
    odd = ["x" * 512, "é" * 256, "100%", "%s %(x)s", "a:b ::c", "\n", " ", "a'b\"c", "Ünï 🎉"]
    for names in (["a", "b"], ["null", "a"], ["NULL", "b"], ["a", "a,b", "{a}", '"', "\\", " a "], odd):
        queue = Queue("".join(names[-2:]))
        given = [Enqueue(channel=name, kind=name, key=name, payload=name, max_attempts=7) for name in names]
        queue.enqueue_many(engine, [*given, Enqueue(channel="z", payload="z", priority=3)])
        found = {delivery.payload: delivery for delivery in queue.dequeue(engine, limit=10)}
        assert set(found) == {*names, "z"}
        for name in names:
            assert (found[name].channel, found[name].kind, found[name].max_attempts) == (name, name, 7)
        assert (found["z"].channel, found["z"].kind, found["z"].max_attempts) == ("z", "default", 20)
        again = queue.enqueue_many(engine, given)
        assert [receipt.outcome for receipt in again] == ["duplicate"] * len(names)
        queue.configure_channel(engine, names[-1], weight=2)
        queue.bury(engine, found[names[-1]], reason=names[-1], error="\x00 \ud800")


def test_an_instant_may_be_far_away(queue: Queue, engine: Engine) -> None:
    """An instant has no limit: a channel that holds one for the year 9999 is served beside it."""
    queue.enqueue(engine, channel="a", payload="far", at=datetime.max.replace(tzinfo=UTC))
    assert queue.dequeue(engine).due_in is not None
    queue.enqueue(engine, channel="a", payload="now")
    assert _payloads(queue, engine) == ["now"]


def test_nothing_of_a_refused_list_is_recorded(queue: Queue, engine: Engine, database: Database) -> None:
    """One bad message refuses the whole list, and what the session had recorded stays."""
    with Session(engine) as session:
        queue.enqueue(session, channel="kept", payload=1)
        bad: Any
        for bad in (EnqueueFactory.build(payload=object()), EnqueueFactory.build(headers={"x": object()}), "text"):
            with pytest.raises((PayloadError, InvalidArgument)):
                queue.enqueue_many(session, [EnqueueFactory.build(), bad])
        session.commit()
    assert database.value("select count(*) from fq_message") == 1


class _Reversed:
    """A codec of the user's own."""

    def encode(self, payload: Any) -> bytes:
        content: bytes = payload[::-1]
        return content

    def decode(self, content: bytes) -> Any:
        return content[::-1]


def test_codecs(engine: Engine, database: Database) -> None:
    """A queue's codec makes the content, and what is no bytes is refused before anything is recorded."""
    for name, codec in (("raw", BytesCodec()), ("reversed", _Reversed())):
        queue = Queue(name, codec=codec)
        with Session(engine) as session:
            queue.enqueue(session, channel="a", payload=b"\x00\xff")
            with pytest.raises(PayloadError):
                queue.enqueue(session, channel="a", payload="a str is no bytes")
            session.commit()
        assert _payloads(queue, engine) == [b"\x00\xff"]
    assert database.value("select count(*) from fq_message") == 2


def test_max_attempts(engine: Engine, clock: Clock, database: Database) -> None:
    """A message gets its own number of attempts, or the queue's, and is a dead letter after them."""
    queue = Queue("documents", max_attempts=2)
    queue.enqueue(engine, channel="own", payload="own", max_attempts=1)
    queue.enqueue(engine, channel="queue", payload="queue")
    seen = []
    for _ in range(3):
        for delivery in queue.dequeue(engine, limit=10):
            seen.append((delivery.payload, delivery.attempt, delivery.max_attempts))
            queue.retry(engine, delivery, error=f"attempt {delivery.attempt}")
        clock.advance(timedelta(seconds=1))
    assert sorted(seen) == [("own", 1, 1), ("queue", 1, 2), ("queue", 2, 2)]
    rows = database.rows("select error from fq_dead_letter order by error")
    assert [row.error for row in rows] == ["attempt 1", "attempt 2"]


def _messages(*numbers: int, channel: str = "a", **fields: Any) -> list[Enqueue]:
    return [Enqueue(channel=channel, payload=number, **fields) for number in numbers]


def test_one_statement_of_its_own(queue: Queue, engine: Engine) -> None:
    """One message goes in one that commits itself, many in one of a transaction; the connection goes back as it was."""
    queue.enqueue(engine, channel="a", payload=0)
    sent: list[tuple[bool, bool]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(connection: Any, _cursor: object, statement: str, *_: object) -> None:
        sent.append(("fq_enqueue" in statement, connection.connection.driver_connection.autocommit))

    receipts = [queue.enqueue(engine, channel="a", payload=1)]
    receipts += queue.enqueue_many(engine, iter(_messages(*range(2, 101))))
    event.remove(engine, "before_cursor_execute", note)
    assert sent == [(True, True), (True, False)]
    with engine.connect() as connection:
        assert not connection.connection.driver_connection.autocommit  # type: ignore[union-attr]
    assert [receipt.outcome for receipt in receipts] == ["created"] * 100
    assert _payloads(queue, engine) == list(range(101))


def test_receipts_of_many(queue: Queue, engine: Engine) -> None:
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
def test_many_are_all_or_none(queue: Queue, engine: Engine, database: Database, where: str) -> None:
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
def test_isolation_of_the_engine(
    queue: Queue, database: Database, waits: Waits, connect: Connect, isolation: str
) -> None:
    """The engine's own isolation does not matter, also where the call waits for another that has the key."""
    holder = connect()
    first = queue.enqueue(holder, channel="a", payload=1, key="k").message_id
    messages = _messages(2, key="k") + _messages(3)

    def enqueue(engine: Engine) -> list[Receipt]:
        own = engine.execution_options(isolation_level=isolation)
        return [*queue.enqueue_many(own, messages), queue.enqueue(own, channel="a", payload=4)]

    rival = waits.start(enqueue).blocked()
    holder.commit()
    receipts = rival.result()
    assert [one.outcome for one in receipts] == ["duplicate", "created", "created"]
    assert receipts[0].message_id == first
    assert receipts[2].message_id == database.value("select max(id) from fq_message")


def test_many_on_a_connection(queue: Queue, engine: Engine, database: Database) -> None:
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
