"""One order of locks for all transactions: recorded work is sorted, immediate work is checked before it is sent."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.errors import LockOrderError
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.unit_of_work.business import QUEUE, channels, taken

Fields = Callable[[str], dict[str, Any]]
Where = Callable[[Engine], Session | Connection]
WHERE = pytest.mark.parametrize("where", [Session, Engine.connect], ids=["session", "connection"])


def _enqueue(engine: Engine, order: str, fields: Fields) -> None:
    with Session(engine) as session:
        for name in order:
            QUEUE.enqueue(session, payload=1, **fields(name))
        session.commit()


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        (lambda name: {"channel": name}, 11),
        (lambda name: {"channel": name, "key": f"key {name}"}, 4),
        (lambda name: {"channel": "x", "key": name}, 4),
    ],
    ids=["first use", "keys", "keys of one channel"],
)
def test_recorded_work_never_deadlocks(
    database: Database, connect: Connect, waits: Waits, fields: Fields, messages: int
) -> None:
    """Whatever order sessions record A, B, C and D in, they take their locks as A, B, C, D: held up at B, neither has
    C, and both commit.
    """
    holder = connect()
    if "key" in fields("a"):
        database.execute("select fq_make_channels('documents', '{a,b,c,d,x}')")
    QUEUE.enqueue(holder, payload=0, **fields("b"))
    rivals = [waits.start(partial(_enqueue, order=order, fields=fields)) for order in ("abcd", "dcba")]
    for rival in rivals:
        rival.blocked()
    # Nobody has C.
    waits.unhindered(lambda engine: _enqueue(engine, "cd", fields))
    holder.commit()
    for rival in rivals:
        rival.result()
    assert len(channels(database)) == messages


def test_statements_are_sent_sorted(engine: Engine) -> None:
    """Whatever order it was recorded in, work is sent by queue: locks, enqueues, configuration, then the rest."""
    sent: list[tuple[str, str | None]] = []

    def note(*given: Any) -> None:
        verb = given[2].partition("from fq_")[2].partition("(")[0]
        if verb != "version":
            sent.append((verb, given[3].get("queue")))

    event.listen(engine, "before_cursor_execute", note)
    steps: list[Callable[[Session], object]] = []
    for queue in map(Queue, "ab"):
        steps += [
            partial(queue.cancel, message_id=1),
            partial(queue.configure_channel, channel="x", policy=queue.defaults),
            partial(queue.enqueue, channel="x", payload=1),
        ]
    for order in (steps, steps[::-1], steps[3:] + steps[:3]):
        sent.clear()
        with Session(engine) as session:
            for step in order:
                step(session)
            session.commit()
        verbs = ("lock_channels", "enqueue", "lock_messages", "configure_channel", "cancel")
        assert sent == [(verb, queue) for verb in verbs for queue in "ab"]


@WHERE
def test_out_of_order(engine: Engine, database: Database, where: Where) -> None:
    """An immediate enqueue out of order is refused before it is sent, with both keys, and the transaction goes on."""
    with where(engine) as own:
        target = own.connection() if isinstance(own, Session) else own
        QUEUE.enqueue(target, channel="b", payload=1)
        with pytest.raises(LockOrderError, match=r"channel 'a' of queue 'documents' after channel 'b'") as caught:
            QUEUE.enqueue(target, channel="a", payload=1)
        assert caught.value.sent == ("", "documents", "b", "")
        assert caught.value.refused == ("", "documents", "a", "")
        QUEUE.enqueue(target, channel="c", payload=1)
        target.commit()
        QUEUE.enqueue(target, channel="a", payload=1)
        target.commit()
    assert channels(database) == ["b", "c", "a"]


def test_what_the_order_is(engine: Engine) -> None:
    """The order is (queue, channel, key) by UTF-8 bytes, no key first; the same key twice is in order."""
    keys = [("a", "Z", None), ("a", "a", None), ("a", "a", "1"), ("a", "a", "2"), ("a", "é", None), ("b", "A", None)]
    for (first, before), (second, after) in permutations(enumerate(keys), 2):
        refused = nullcontext() if first < second else pytest.raises(LockOrderError)
        with Session(engine) as session:
            for (queue, channel, key), expected in ((before, nullcontext()), (before, nullcontext()), (after, refused)):
                with expected:
                    Queue(queue).enqueue(session.connection(), channel=channel, key=key, payload=1)


def test_after_other_work(engine: Engine, database: Database, connect: Connect) -> None:
    """After a completion, cancel or configuration of the same transaction an immediate enqueue is refused."""
    for verb in ("complete", "retry", "release", "bury", "cancel", "configure_channel"):
        message_id = QUEUE.enqueue(engine, channel="a", payload=1).message_id or 0
        connection = connect()
        if verb == "cancel":
            QUEUE.cancel(connection, message_id)
        elif verb == "configure_channel":
            QUEUE.configure_channel(connection, "a", QUEUE.defaults)
        else:
            getattr(QUEUE, verb)(connection, QUEUE.dequeue(engine))
        with pytest.raises(LockOrderError, match="enqueue first") as caught:
            QUEUE.enqueue(connection, channel="z", payload=1)
        assert caught.value.sent == "completion"
        connection.commit()
        QUEUE.enqueue(connection, channel="z", payload=1)
        connection.commit()
        assert taken(database)[0][-1] == "z"


def test_recorded_after_immediate(engine: Engine, database: Database) -> None:
    """Recorded work that sorts before immediate work of its transaction fails the commit, with nothing sent."""
    with Session(engine) as session:
        QUEUE.enqueue(session, channel="a", payload=1)
        QUEUE.enqueue(session.connection(), channel="b", payload=1)
        with pytest.raises(LockOrderError):
            session.commit()
        assert session.scalar(text("select count(*) from fq_message")) == 1
        session.rollback()
        QUEUE.enqueue(session.connection(), channel="b", payload=1)
        QUEUE.enqueue(session, channel="c", payload=1)
        session.commit()
    assert channels(database) == ["b", "c"]


async def test_async_enqueues_at_once(async_engine: AsyncEngine, database: Database) -> None:
    """Awaited, it returns the id and checks the order, also on the connection of an AsyncSession."""
    async with AsyncSession(async_engine) as session:
        message_id = (await QUEUE.enqueue(await session.connection(), channel="b", payload=1)).message_id
        with pytest.raises(LockOrderError):
            await QUEUE.enqueue(await session.connection(), channel="a", payload=1)
        await session.commit()
    assert database.value("select id from fq_message") == message_id
