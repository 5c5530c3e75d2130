"""Dead letters: listed, redriven, purged; on engines, connections and sessions, sync and async."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import BytesCodec, InvalidArgument, PayloadError, Queue
from sqlalchemy_fairqueue.errors import AutocommitError, LockOrderError
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database


@pytest.fixture
def dead(queue: Queue, engine: Engine, clock: Clock) -> list[int]:
    """Six dead letters, a second apart: of channels a, b, a, b ... and of kinds x, x, x, y, y, y."""
    ids = []
    for number in range(6):
        with Session(engine) as session:
            queue.enqueue(
                session,
                channel="ab"[number % 2],
                payload=number,
                kind="x" if number < 3 else "y",
                headers={"n": number},
            )
            session.commit()
        [delivery] = queue.dequeue(engine)
        queue.bury(engine, delivery, reason=f"reason {number}", error=f"error {number}")
        ids.append(delivery.message_id)
        clock.advance(timedelta(seconds=1))
    return ids


def test_what_is_told(queue: Queue, engine: Engine, dead: list[int], clock: Clock) -> None:
    """A dead letter tells the whole message, why it died and when."""
    found = queue.dead_letters.list(engine)
    assert [one.message_id for one in found] == dead
    first = found[0]
    assert (first.queue, first.channel, first.kind, first.payload, first.headers) == (
        "documents",
        "a",
        "x",
        0,
        {"n": 0},
    )
    assert (first.content, first.key) == (b"0", None)
    assert (first.attempts, first.max_attempts, first.deliveries) == (1, 20, 1)
    assert (first.reason, first.error) == ("reason 0", "error 0")
    assert clock.now() - timedelta(minutes=5) < first.enqueued_at <= first.died_at < clock.now()
    assert first.died_at.tzinfo is UTC
    assert len({*found}) == 6


def test_by_name(queue: Queue, engine: Engine) -> None:
    """A key and an ordering key name letters of a channel, so that an ordering key that one of them holds goes on."""
    queue.configure(engine, on_dead="hold")
    for number, (channel, key, ordering_key) in enumerate(
        [("a", "k", "s"), ("a", "l", "t"), ("b", "k", "s"), ("a", None, "s")]
    ):
        queue.enqueue(engine, channel=channel, payload=number, key=key, ordering_key=ordering_key)
    queue.bury(engine, queue.dequeue(engine, limit=9), reason="bad")
    letters = queue.dead_letters

    def named(**name: Any) -> list[object]:
        return [one.payload for one in letters.list(engine, channel="a", **name)]

    assert (named(key="k"), named(ordering_key="t"), named(key="k", ordering_key="t")) == ([0], [1], [])
    assert queue.dequeue(engine) == []
    assert letters.purge(engine, channel="a", ordering_key="t") == 1
    assert list(letters.redrive(engine, channel="a", ordering_key="s").values()) == ["redriven"]
    [again] = queue.dequeue(engine, limit=9)
    assert again.payload == 0
    queue.complete(engine, again)
    assert [one.payload for one in queue.dequeue(engine, limit=9)] == [3]
    assert letters.redrive(engine, channel="b", key="l") == {}
    assert [one.payload for one in letters.list(engine)] == [2]
    for call in (letters.list, letters.redrive, letters.purge):
        with pytest.raises(InvalidArgument, match="channel"):
            call(engine, ordering_key="s")


def test_what_is_asked_for(queue: Queue, engine: Engine, dead: list[int]) -> None:
    """Ids, channel and kind restrict together; pages follow each other without gap or overlap."""

    def ids(*args: Any, **given: Any) -> list[int]:
        return [one.message_id for one in queue.dead_letters.list(engine, *args, **given)]

    assert ids(channel="a") == dead[::2]
    assert ids(channel="nobody") == []
    assert ids(kind="y") == dead[3:]
    assert ids(channel="b", kind="y") == [dead[3], dead[5]]
    assert ids(dead[2]) == [dead[2]]
    assert ids([dead[4], dead[1], 10**12]) == [dead[1], dead[4]]
    assert ids([]) == []
    assert ids(dead, channel="b") == dead[1::2]
    pages, last = [], None
    while page := queue.dead_letters.list(engine, limit=4, after=last):
        pages.append([one.message_id for one in page])
        last = page[-1]
    assert pages == [dead[:4], dead[4:]]
    assert Queue("others").dead_letters.list(engine) == []


def test_by_error_and_time(queue: Queue, engine: Engine, dead: list[int]) -> None:
    """A text of the reason or the error, and times, restrict them; pages go on behind what was found."""
    found = queue.dead_letters.list(engine)
    times = [one.died_at for one in found]

    def ids(**asked: Any) -> list[int]:
        return [one.message_id for one in queue.dead_letters.list(engine, **asked)]

    assert ids(error="reason 2") == ids(error="error 2") == [dead[2]]
    assert ids(error="r") == dead
    assert ids(error="%") == ids(error="_") == ids(error="R") == []
    assert ids(error="error", limit=2) == dead[:2]
    assert ids(error="error", limit=2, after=found[1]) == dead[2:4]
    assert ids(error="error", channel="b", kind="y") == [dead[3], dead[5]]
    assert ids(since=times[2]) == dead[2:]
    assert ids(until=times[2]) == dead[:2]
    assert ids(since=times[1], until=times[4], kind="x") == dead[1:3]
    assert ids(since=times[3], after=found[4]) == [dead[5]]


def test_payload_of_another_codec(engine: Engine, queue: Queue, dead: list[int]) -> None:
    """A content that the codec cannot decode spoils its own letter's payload only."""
    raw = Queue("documents", codec=BytesCodec())
    with Session(engine) as session:
        raw.enqueue(session, channel="a", payload=b"\xff")
        session.commit()
    raw.bury(engine, raw.dequeue(engine))
    *good, bad = queue.dead_letters.list(engine)
    assert [one.payload for one in good] == list(range(len(dead)))
    assert bad.content == b"\xff"
    with pytest.raises(PayloadError, match="not JSON"):
        _ = bad.payload


def test_redrive(queue: Queue, engine: Engine, dead: list[int]) -> None:
    """Redriven messages come back with their ids, oldest death first, their attempts counted anew."""
    assert queue.dead_letters.redrive(engine, limit=2) == dict.fromkeys(dead[:2], "redriven")
    assert queue.dead_letters.redrive(engine, kind="x") == {dead[2]: "redriven"}
    assert queue.dead_letters.redrive(engine, [dead[3], 10**12], channel="b") == {
        dead[3]: "redriven",
        10**12: "missing",
    }
    assert queue.dead_letters.redrive(engine, dead[4]) == {dead[4]: "redriven"}
    assert queue.dead_letters.redrive(engine, []) == {}
    assert [one.message_id for one in queue.dead_letters.list(engine)] == [dead[5]]
    batch = queue.dequeue(engine, limit=10)
    assert sorted(one.message_id for one in batch) == dead[:5]
    assert {(one.attempt, one.deliveries) for one in batch} == {(1, 2)}
    queue.complete(engine, batch)


def test_redrive_of_a_key_that_stands(queue: Queue, engine: Engine) -> None:
    """A dead letter whose key another message holds stays dead, and says so."""
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload="dead", key="k")
        session.commit()
        [delivery] = queue.dequeue(engine)
        queue.bury(engine, delivery)
        queue.enqueue(session, channel="a", payload="alive", key="k")
        session.commit()
    assert queue.dead_letters.redrive(engine) == {delivery.message_id: "duplicate"}
    assert queue.dead_letters.list(engine)[0].key == "k"
    queue.complete(engine, queue.dequeue(engine))
    assert queue.dead_letters.redrive(engine) == {delivery.message_id: "redriven"}


def test_redrive_is_one_with_its_transaction(
    queue: Queue, engine: Engine, connect: Connect, dead: list[int], database: Database
) -> None:
    """On a session or connection a redrive lives or dies with the transaction, and is done at once in it."""
    with Session(engine) as session:
        assert len(queue.dead_letters.redrive(session)) == 6
        assert queue.dead_letters.list(session) == []
        session.rollback()
        assert len(queue.dead_letters.list(session)) == 6
    connection = connect()
    queue.dead_letters.redrive(connection, dead[0])
    connection.rollback()
    assert queue.dead_letters.purge(connection, dead[1]) == 1
    connection.commit()
    assert database.value("select count(*) from fq_dead_letter") == 5
    assert database.value("select count(*) from fq_message") == 0


def test_redrive_in_the_lock_order(queue: Queue, engine: Engine, connect: Connect, dead: list[int]) -> None:
    """After a redrive its transaction cannot enqueue: that is refused before it is sent, and the next one is free."""
    connection = connect()
    with connection.begin(), Session(connection, join_transaction_mode="rollback_only") as session:
        queue.dead_letters.redrive(session, dead[0])
        with pytest.raises(LockOrderError, match="after a completion"):
            queue.enqueue(session.connection(), channel="z", payload=1)
        session.commit()
        queue.enqueue(session.connection(), channel="z", payload=1)
        session.commit()
    with Session(engine) as session:
        queue.dead_letters.redrive(session, dead[1])
        queue.enqueue(session, channel="z", payload=1)
        with pytest.raises(LockOrderError, match="a redrive is sent at once: call it on an engine"):
            session.commit()


async def test_aredrive_in_the_lock_order(queue: Queue, async_engine: AsyncEngine, dead: list[int]) -> None:
    """So it is on an AsyncConnection."""
    async with async_engine.begin() as connection:
        await queue.dead_letters.redrive(connection, dead[0])
        with pytest.raises(LockOrderError, match="after a completion"):
            await queue.enqueue(connection, channel="z", payload=1)


def test_redrive_of_a_joined_session(queue: Queue, engine: Engine, dead: list[int], database: Database) -> None:
    """A redrive binds its own session: the next one in the same outer transaction may enqueue."""
    with engine.connect() as connection, connection.begin():
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            assert queue.dead_letters.redrive(session, dead[0]) == {dead[0]: "redriven"}
            session.commit()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            queue.enqueue(session, channel="a", payload=1)
            session.commit()
    assert database.value("select count(*) from fq_message") == 2


def test_redrive_on_a_strict_server(queue: Queue, dead: list[int], database: Database) -> None:
    """Where a dequeue has found the server's default isolation strict, a redrive is committed when it returns."""
    strict = create_engine(database.url, connect_args={"options": "-c default_transaction_isolation=serializable"})
    assert queue.dequeue(strict) == []
    assert len(queue.dead_letters.redrive(strict)) == len(dead)
    strict.dispose()
    assert database.value("select count(*) from fq_message") == len(dead)


def test_autocommit(queue: Queue, connect: Connect, engine: Engine, dead: list[int]) -> None:
    """A redrive on a connection in AUTOCOMMIT is refused with nothing sent; on an engine it has its own transaction."""
    with pytest.raises(AutocommitError):
        queue.dead_letters.redrive(connect("AUTOCOMMIT"))
    assert len(queue.dead_letters.list(connect("AUTOCOMMIT"))) == 6
    assert len(queue.dead_letters.redrive(engine.execution_options(isolation_level="AUTOCOMMIT"), dead[:3])) == 3
    assert len(queue.dead_letters.redrive(engine.execution_options(isolation_level="SERIALIZABLE"))) == 3


def test_purge_dead(queue: Queue, engine: Engine, dead: list[int]) -> None:
    """What is given restricts a purge; with nothing given all of the queue's go."""
    letters = queue.dead_letters.list(engine)
    assert queue.dead_letters.purge(engine, []) == 0
    assert queue.dead_letters.purge(engine, [dead[0], 10**12]) == 1
    assert queue.dead_letters.purge(engine, channel="b", kind="x") == 1
    assert queue.dead_letters.purge(engine, until=letters[3].died_at) == 1
    assert queue.dead_letters.purge(engine, until=datetime.now(UTC) - timedelta(days=1)) == 0
    assert queue.dead_letters.purge(engine, before=datetime.now(UTC) - timedelta(days=1)) == 0
    assert Queue("others").dead_letters.purge(engine) == 0
    assert queue.dead_letters.purge(engine) == 3
    assert queue.dead_letters.list(engine) == []
