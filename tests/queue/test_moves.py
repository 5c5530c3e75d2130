"""Messages that are put into another channel."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue
from sqlalchemy_fairqueue.errors import LockOrderError
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.model.invariants import HELD, LEFT

_HELD = HELD.replace("(select last_value from public.test_clock)", "fq_now()")


def _enqueue(queue: Queue, engine: Engine, *payloads: object, channel: str = "a", **fields: Any) -> list[int]:
    receipts = queue.enqueue_many(engine, [Enqueue(channel=channel, payload=one, **fields) for one in payloads])
    return [receipt.message_id or 0 for receipt in receipts]


def _check(database: Database) -> None:
    assert database.rows(_HELD) == []


def _backlogs(queue: Queue, engine: Engine) -> dict[str, int]:
    return {one.channel: one.ready + one.scheduled for one in queue.channels(engine)}


def test_a_move(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """The message is the same one, stands by its time in its new channel, and both backlogs are right."""
    first, second = _enqueue(queue, engine, 1, 2, key=None)
    clock.advance(timedelta(seconds=1))
    _enqueue(queue, engine, 3, channel="b")
    [moved] = _enqueue(queue, engine, {"x": 1}, key="k", headers={"h": 1}, max_attempts=3, kind="parse")
    [delivery] = queue.dequeue(engine)
    assert delivery.message_id == first
    queue.retry(engine, delivery, delay=timedelta(), error="once")
    for message_id, channel in ((second, "b"), (first, "new"), (moved, "b")):
        before = queue.message(engine, message_id)
        assert queue.admin.move(engine, message_id, channel) == "moved"
        after = queue.message(engine, message_id)
        assert before is not None
        assert after is not None
        assert after.channel == channel
        for name in ("kind", "content", "headers", "key", "enqueued_at", "due_at", "attempts", "max_attempts", "error"):
            assert getattr(after, name) == getattr(before, name), name
        _check(database)
    assert queue.messages(engine, channel="b")[0].message_id == second
    assert _backlogs(queue, engine) == {"a": 0, "b": 3, "new": 1}
    deliveries = {one.message_id: one for one in queue.dequeue(engine, limit=10)}
    assert len(deliveries) == 4
    assert (deliveries[first].channel, deliveries[first].attempt, deliveries[first].deliveries) == ("new", 2, 2)
    assert deliveries[moved].payload == {"x": 1}
    queue.complete(engine, deliveries.values())
    assert len(queue.dequeue(engine)) == 0
    assert [row for row in database.rows(LEFT) if "lease" not in row[0]] == []


def test_what_stays(queue: Queue, engine: Engine, database: Database) -> None:
    """A message that a consumer holds, one whose key is taken, and one that is not there stay as they are."""
    [held] = _enqueue(queue, engine, 1, channel="held")
    assert len(queue.dequeue(engine)) == 1
    [one] = _enqueue(queue, engine, 1, key="k")
    [other] = _enqueue(queue, engine, 2, channel="b", key="k")
    before = database.rows("select * from fq_message order by id")
    assert queue.admin.move(engine, held, "b") == "leased"
    assert queue.admin.move(engine, one, "b") == "duplicate"
    assert queue.admin.move(engine, one, "a") == "unchanged"
    assert queue.admin.move(engine, other + 1, "b") == "missing"
    assert Queue("others").admin.move(engine, one, "b") == "missing"
    assert database.rows("select * from fq_message order by id") == before
    _check(database)


@pytest.mark.parametrize("aging", [None, timedelta(minutes=1)])
def test_priority_and_time(queue: Queue, engine: Engine, clock: Clock, database: Database, aging: Any) -> None:
    """A message that is due later keeps its time, and its priority from then on; one that is due has its priority."""
    queue.configure_channel(engine, "b", ChannelPolicy(priority_aging=aging))
    [urgent] = _enqueue(queue, engine, "urgent", priority=2)
    [later] = _enqueue(queue, engine, "later", priority=1, delay=timedelta(hours=1))
    [scheduled] = _enqueue(queue, engine, "scheduled", delay=timedelta(hours=1))
    _enqueue(queue, engine, "ordinary", channel="b")
    for message_id in urgent, later, scheduled:
        assert queue.admin.move(engine, message_id, "b") == "moved"
        _check(database)
    found = [queue.codec.decode(one.content) for one in queue.messages(engine, channel="b")]
    assert found == ["urgent", "ordinary", "later", "scheduled"]
    clock.advance(timedelta(hours=2))
    taken = [[one.payload for one in queue.dequeue(engine)] for _ in range(4)]
    expected = ["urgent", "ordinary", "later", "scheduled"] if aging else ["urgent", "later", "ordinary", "scheduled"]
    assert taken == [[one] for one in expected]


def test_a_full_channel(queue: Queue, engine: Engine) -> None:
    """A bound of the backlog does not hold a message up, and counts it."""
    queue.configure_channel(engine, "b", ChannelPolicy(max_backlog=1, on_full="drop"))
    one, two = _enqueue(queue, engine, 1, 2)
    assert [queue.admin.move(engine, message_id, "b") for message_id in (one, two)] == ["moved"] * 2
    [receipt] = queue.enqueue_many(engine, [Enqueue(channel="b", payload=3)])
    assert receipt.outcome == "dropped"


def test_in_a_transaction(queue: Queue, engine: Engine, database: Database) -> None:
    """It is part of it, undone by its rollback, and counts as a settlement in its lock order."""
    [message_id] = _enqueue(queue, engine, 1)
    with Session(engine) as session:
        assert queue.admin.move(session, message_id, "b") == "moved"
        with pytest.raises(LockOrderError):
            queue.enqueue(session.connection(), channel="c", payload=1)
        session.rollback()
    found = queue.message(engine, message_id)
    assert found is not None
    assert found.channel == "a"
    assert _backlogs(queue, engine) == {"a": 1}
    _check(database)


def test_keys_come_before_messages(queue: Queue, engine: Engine, connect: Connect, waits: Waits) -> None:
    """A move waits for the key before it holds the message, so that no circle is closed with who goes the other way."""
    [message_id] = _enqueue(queue, engine, 1, key="k")
    holder = connect()
    queue.enqueue(holder, channel="b", payload=2, key="k")
    rival = waits.start(lambda own: queue.admin.move(own, message_id, "b")).blocked()
    # The message is free meanwhile: an enqueue comes before a cancel in every transaction.
    queue.cancel(holder, message_id)
    holder.rollback()
    assert rival.result() == "moved"


@pytest.mark.parametrize("committed", [True, False])
def test_a_message_that_others_work_on(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database, *, committed: bool
) -> None:
    """A move waits for a transaction that cancels the message, and then finds it gone or moves it."""
    [message_id] = _enqueue(queue, engine, 1, key="k")
    holder = connect()
    queue.cancel(holder, message_id)
    rival = waits.start(lambda own: queue.admin.move(own, message_id, "b")).blocked()
    if committed:
        holder.commit()
    else:
        holder.rollback()
    assert rival.result() == ("missing" if committed else "moved")
    _check(database)
    assert len(queue.dequeue(engine, limit=10)) == (0 if committed else 1)
    # The key of the other channel is free again, or the message's.
    [receipt] = queue.enqueue_many(engine, [Enqueue(channel="b", payload=2, key="k")])
    assert receipt.outcome == ("created" if committed else "duplicate")


def test_two_moves(queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database) -> None:
    """Two moves of one message, and of two messages with one key, follow each other."""
    [message_id] = _enqueue(queue, engine, 1, key="k")
    [other] = _enqueue(queue, engine, 2, channel="c", key="k")
    holder = connect()
    assert queue.admin.move(holder, message_id, "b") == "moved"
    again = waits.start(partial(queue.admin.move, message_id=message_id, channel="d")).blocked()
    same_key = waits.start(partial(queue.admin.move, message_id=other, channel="b")).blocked()
    # A dequeue waits for nobody, and takes the message from neither channel meanwhile.
    taken = waits.unhindered(lambda own: queue.dequeue(own, limit=10))
    assert [one.message_id for one in taken] == [other]
    holder.commit()
    assert again.result() == "moved"
    assert same_key.result() in {"leased", "duplicate"}
    _check(database)
    assert len(queue.dequeue(engine, limit=10)) == 1


def test_a_cancel_that_meets_a_move(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """It waits for the move, and withdraws the message where that has put it; so does one that locks messages first."""
    first, second, third = _enqueue(queue, engine, 1, 2, 3)
    holder = connect()
    assert [queue.admin.move(holder, message_id, "b") for message_id in (first, third)] == ["moved"] * 2
    [delivery] = queue.dequeue(engine)
    assert delivery.message_id == second

    def withdraw(own: Engine) -> tuple[object, object]:
        with Session(own) as session:
            receipts = queue.cancel(session, first), queue.cancel(session, third + 100)
            session.commit()
        return receipts[0].outcome, receipts[1].outcome

    def withdraw_and_complete(own: Engine) -> object:
        with Session(own) as session:
            receipt = queue.cancel(session, third)
            queue.complete(session, delivery)
            session.commit()
        return receipt.outcome

    rivals = waits.start(withdraw).blocked(), waits.start(withdraw_and_complete).blocked()
    holder.commit()
    assert rivals[0].result() == ("cancelled", "missing")
    assert rivals[1].result() == "cancelled"
    assert queue.dequeue(engine, limit=10) == []
    assert _backlogs(queue, engine) == {"a": 0, "b": 0}
    _check(database)


def test_a_message_that_moves_is_tried_at_once(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """A call that makes it due waits for the move, and makes it due where that has put it; one that is gone is gone."""
    first, second = _enqueue(queue, engine, 1, 2, delay=timedelta(hours=1))
    holder = connect()
    assert queue.admin.move(holder, first, "b") == "moved"
    queue.cancel(holder, second)
    rivals = [waits.start(partial(queue.admin.retry_now, message_id=one)).blocked() for one in (first, second)]
    holder.commit()
    assert [rival.result() for rival in rivals] == ["due", "missing"]
    assert [one.channel for one in queue.dequeue(engine, limit=10)] == ["b"]
    _check(database)


def test_a_replacing_enqueue_that_meets_a_move(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """In the new channel it replaces the message, in the old one it adds another."""
    [message_id] = _enqueue(queue, engine, 1, key="k")
    holder = connect()
    assert queue.admin.move(holder, message_id, "b") == "moved"

    def replace(own: Engine, channel: str) -> int | None:
        [receipt] = queue.enqueue_many(own, [Enqueue(channel=channel, payload=2, key="k", on_duplicate="replace")])
        return receipt.message_id

    new = waits.start(partial(replace, channel="b")).blocked()
    old = waits.start(partial(replace, channel="a")).blocked()
    holder.commit()
    assert new.result() == message_id
    assert old.result() != message_id
    assert sorted((one.channel, one.payload) for one in queue.dequeue(engine, limit=10)) == [("a", 2), ("b", 2)]
    _check(database)
