"""What administrators do with a message: put it into another channel, or try it at once; its attempts."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue
from sqlalchemy_fairqueue.errors import LockOrderError
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.model.invariants import LEFT
from tests.queue.seeds import WRONG, add, message

HOUR = timedelta(hours=1)


def _backlogs(queue: Queue, engine: Engine) -> dict[str, int]:
    return {one.channel: one.ready + one.scheduled for one in queue.channels(engine)}


def test_a_move(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """The message is the same one, stands by its time in its new channel, and both backlogs are right."""
    first, second = add(queue, engine, 1, 2, key=None)
    clock.advance(timedelta(seconds=1))
    add(queue, engine, 3, channel="b")
    [moved] = add(queue, engine, {"x": 1}, key="k", headers={"h": 1}, max_attempts=3, kind="parse")
    [delivery] = queue.dequeue(engine)
    assert delivery.message_id == first
    queue.retry(engine, delivery, delay=timedelta(), error="once")
    for message_id, channel in ((second, "b"), (first, "new"), (moved, "b")):
        before = message(queue, engine, message_id)
        assert queue.admin.move(engine, message_id, channel) == "moved"
        after = message(queue, engine, message_id)
        assert after.channel == channel
        for name in ("kind", "content", "headers", "key", "enqueued_at", "due_at", "attempts", "max_attempts", "error"):
            assert getattr(after, name) == getattr(before, name), name
        assert database.rows(WRONG) == []
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
    """A message that a consumer or its ordering key holds, one whose key is taken, and one that is not there stay."""
    [held] = add(queue, engine, 1, channel="held", ordering_key="o")
    [behind] = add(queue, engine, 2, channel="held", ordering_key="o")
    assert len(queue.dequeue(engine, limit=2)) == 1
    [one] = add(queue, engine, 1, key="k")
    [other] = add(queue, engine, 2, channel="b", key="k")
    before = database.rows("select * from fq_message order by id")
    assert queue.admin.move(engine, held, "b") == "leased"
    assert queue.admin.move(engine, one, "b") == "duplicate"
    assert queue.admin.move(engine, one, "a") == "unchanged"
    assert queue.admin.move(engine, other + 1, "b") == "missing"
    assert Queue("others").admin.move(engine, one, "b") == "missing"
    assert (queue.admin.retry_now(engine, held), queue.admin.retry_now(engine, behind)) == ("leased", "unchanged")
    assert queue.admin.retry_now(engine, other + 1) == Queue("others").admin.retry_now(engine, one) == "missing"
    assert database.rows("select * from fq_message order by id") == before
    assert database.rows(WRONG) == []


@pytest.mark.parametrize("aging", [None, timedelta(minutes=1)])
def test_priority_and_time(queue: Queue, engine: Engine, clock: Clock, database: Database, aging: Any) -> None:
    """A message that is due later keeps its time, and its priority from then on; one that is due has its priority."""
    queue.configure_channel(engine, "b", ChannelPolicy(priority_aging=aging))
    [urgent] = add(queue, engine, "urgent", priority=2)
    [later] = add(queue, engine, "later", priority=1, delay=HOUR)
    [scheduled] = add(queue, engine, "scheduled", delay=HOUR)
    add(queue, engine, "ordinary", channel="b")
    for message_id in urgent, later, scheduled:
        assert queue.admin.move(engine, message_id, "b") == "moved"
        assert database.rows(WRONG) == []
    found = [queue.codec.decode(one.content) for one in queue.messages(engine, channel="b")]
    assert found == ["urgent", "ordinary", "later", "scheduled"]
    clock.advance(timedelta(hours=2))
    taken = [[one.payload for one in queue.dequeue(engine)] for _ in range(4)]
    expected = ["urgent", "ordinary", "later", "scheduled"] if aging else ["urgent", "later", "ordinary", "scheduled"]
    assert taken == [[one] for one in expected]


def test_a_full_channel(queue: Queue, engine: Engine) -> None:
    """A bound of the backlog does not hold a message up, and counts it."""
    queue.configure_channel(engine, "b", ChannelPolicy(max_backlog=1, on_full="drop"))
    one, two = add(queue, engine, 1, 2)
    assert [queue.admin.move(engine, message_id, "b") for message_id in (one, two)] == ["moved"] * 2
    [receipt] = queue.enqueue_many(engine, [Enqueue(channel="b", payload=3)])
    assert receipt.outcome == "dropped"


def test_in_a_transaction(queue: Queue, engine: Engine, database: Database) -> None:
    """A move, or a call that makes a message due, is part of it, undone by its rollback, and counts as a settlement in
    its lock order.
    """
    [message_id] = add(queue, engine, 1, delay=HOUR)
    for verb, answer in ((partial(queue.admin.move, channel="b"), "moved"), (queue.admin.retry_now, "due")):
        with Session(engine) as session:
            assert verb(session, message_id=message_id) == answer
            with pytest.raises(LockOrderError):
                queue.enqueue(session.connection(), channel="c", payload=1)
            session.rollback()
    assert _backlogs(queue, engine) == {"a": 1}
    assert queue.dequeue(engine) == []
    assert database.rows(WRONG) == []


def test_keys_come_before_messages(queue: Queue, engine: Engine, connect: Connect, waits: Waits) -> None:
    """A move waits for the key before it holds the message, so that no circle is closed with who goes the other way."""
    [message_id] = add(queue, engine, 1, key="k")
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
    [message_id] = add(queue, engine, 1, key="k")
    holder = connect()
    queue.cancel(holder, message_id)
    rival = waits.start(lambda own: queue.admin.move(own, message_id, "b")).blocked()
    if committed:
        holder.commit()
    else:
        holder.rollback()
    assert rival.result() == ("missing" if committed else "moved")
    assert database.rows(WRONG) == []
    assert len(queue.dequeue(engine, limit=10)) == (0 if committed else 1)
    # The key of the other channel is free again, or the message's.
    [receipt] = queue.enqueue_many(engine, [Enqueue(channel="b", payload=2, key="k")])
    assert receipt.outcome == ("created" if committed else "duplicate")


def test_two_moves(queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database) -> None:
    """Two moves of one message, and of two messages with one key, follow each other."""
    [message_id] = add(queue, engine, 1, key="k")
    [other] = add(queue, engine, 2, channel="c", key="k")
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
    assert database.rows(WRONG) == []
    assert len(queue.dequeue(engine, limit=10)) == 1


def test_a_cancel_that_meets_a_move(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """It waits for the move, and withdraws the message where that has put it; so does one that locks messages first."""
    first, second, third = add(queue, engine, 1, 2, 3)
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
    assert database.rows(WRONG) == []


def test_a_message_that_moves_is_tried_at_once(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """A call that makes it due waits for the move, and makes it due where that has put it; one that is gone is gone."""
    first, second = add(queue, engine, 1, 2, delay=HOUR)
    holder = connect()
    assert queue.admin.move(holder, first, "b") == "moved"
    queue.cancel(holder, second)
    rivals = [waits.start(partial(queue.admin.retry_now, message_id=one)).blocked() for one in (first, second)]
    holder.commit()
    assert [rival.result() for rival in rivals] == ["due", "missing"]
    assert [one.channel for one in queue.dequeue(engine, limit=10)] == ["b"]
    assert database.rows(WRONG) == []


def test_a_replacing_enqueue_that_meets_a_move(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """In the new channel it replaces the message, in the old one it adds another."""
    [message_id] = add(queue, engine, 1, key="k")
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
    assert database.rows(WRONG) == []


def _taken(queue: Queue, engine: Engine) -> list[object]:
    taken = []
    while deliveries := queue.dequeue(engine, limit=1):
        taken += [one.payload for one in deliveries]
        queue.complete(engine, deliveries)
    return taken


def test_by_name_of_one_that_is_tried_at_once(queue: Queue, engine: Engine) -> None:
    """A key or an ordering key stands for a message that waits; of an ordering key the next one is made due."""
    add(queue, engine, "first", key="k", ordering_key="s", delay=HOUR)
    add(queue, engine, "second", ordering_key="s", delay=HOUR)
    assert queue.admin.retry_now(engine, channel="a", key="other") == "missing"
    assert queue.admin.retry_now(engine, channel="a", ordering_key="s") == "due"
    assert queue.admin.retry_now(engine, channel="a", key="k") == "unchanged"
    assert _taken(queue, engine) == ["first"]
    assert queue.admin.retry_now(engine, channel="a", ordering_key="s") == "due"
    assert _taken(queue, engine) == ["second"]


def test_one_that_is_scheduled(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """It is due at once, and comes in its channel as if it had had no delay."""
    add(queue, engine, "first")
    clock.advance(timedelta(seconds=1))
    [scheduled] = add(queue, engine, "scheduled", delay=HOUR)
    clock.advance(timedelta(seconds=1))
    add(queue, engine, "last")
    assert len(queue.dequeue(engine, limit=1)) == 1
    assert queue.admin.retry_now(engine, scheduled) == "due"
    assert database.rows(WRONG) == []
    assert queue.admin.retry_now(engine, scheduled) == "unchanged"
    [stats] = queue.channels(engine)
    assert (stats.ready, stats.scheduled) == (2, 0)
    assert _taken(queue, engine) == ["scheduled", "last"]


def test_one_that_waits_for_its_next_attempt(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """Its attempts stay counted; the history says that it was ready from the call on."""
    queue.configure(engine, history=True)
    [message_id] = add(queue, engine, 1)
    queue.retry(engine, queue.dequeue(engine), delay=HOUR, error="Traceback\nValueError: odd")
    assert not queue.dequeue(engine)
    clock.advance(timedelta(minutes=1))
    assert queue.admin.retry_now(engine, message_id) == "due"
    clock.advance(timedelta(seconds=2))
    [delivery] = queue.dequeue(engine)
    assert (delivery.message_id, delivery.attempt) == (message_id, 2)
    queue.retry(engine, delivery)
    waited = [one.started_at - one.ready_at for one in queue.admin.attempts(engine, message_id)][1]
    assert timedelta(seconds=2) <= waited < timedelta(minutes=1)
    clock.advance(HOUR)
    queue.complete(engine, queue.dequeue(engine))
    assert [row for row in database.rows(LEFT) if "lease" not in row[0]] == []


def test_one_that_is_dead(queue: Queue, engine: Engine) -> None:
    """It is redriven, unless another message holds its key."""
    [message_id] = add(queue, engine, 1, key="k")
    queue.bury(engine, queue.dequeue(engine), reason="bad")
    [other] = add(queue, engine, 2, key="k")
    assert queue.admin.retry_now(engine, message_id) == "duplicate"
    queue.cancel(engine, other)
    assert queue.admin.retry_now(engine, message_id) == "redriven"
    assert _taken(queue, engine) == [1]
    assert queue.admin.retry_now(engine, message_id) == "missing"


@pytest.mark.parametrize("aging", [None, timedelta(minutes=1)])
def test_a_priority_of_one_that_is_tried_at_once(
    queue: Queue, engine: Engine, clock: Clock, database: Database, aging: Any
) -> None:
    """It has its priority from the call on, once, also when the time comes for which it was scheduled."""
    queue.configure_channel(engine, "a", ChannelPolicy(priority_aging=aging))
    add(queue, engine, "ordinary")
    [urgent] = add(queue, engine, "urgent", priority=3, delay=HOUR)
    assert queue.admin.retry_now(engine, urgent) == "due"
    assert database.rows(WRONG) == []
    [delivery] = queue.dequeue(engine, limit=1)
    assert delivery.payload == "urgent"
    queue.retry(engine, delivery, delay=2 * HOUR)
    clock.advance(HOUR + timedelta(minutes=1))
    assert _taken(queue, engine) == ["ordinary"]
    clock.advance(HOUR)
    assert _taken(queue, engine) == ["urgent"]
    assert database.value("select count(*) from fq_promotion") == 0


def test_limits_hold_of_one_that_is_tried_at_once(queue: Queue, engine: Engine) -> None:
    """A pause and a limit of the channel hold for it, too."""
    [message_id] = add(queue, engine, 1, delay=HOUR)
    queue.pause(engine, "a")
    assert queue.admin.retry_now(engine, message_id) == "due"
    assert not queue.dequeue(engine)
    found = message(queue, engine, message_id)
    assert found.wait is not None
    assert found.wait.reason == "paused"
    queue.resume(engine, "a")
    assert _taken(queue, engine) == [1]


def test_attempts(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Those that did not complete a message are told, however they ended, as long as the queue records them."""
    [message_id] = add(queue, engine, 1, max_attempts=5)
    queue.retry(engine, queue.dequeue(engine), error="not recorded")
    queue.configure(engine, history=True)
    clock.advance(HOUR)
    began = clock.now()
    queue.retry(engine, queue.dequeue(engine), error="first")
    clock.advance(HOUR)
    queue.release(engine, queue.dequeue(engine))
    clock.advance(HOUR)
    assert queue.dequeue(engine, lease=timedelta(seconds=1))
    clock.advance(HOUR)
    [delivery] = queue.dequeue(engine)
    found = message(queue, engine, message_id)
    assert [(one.attempt, one.outcome, one.error) for one in found.history] == [
        (2, "retried", "first"), (3, "released", None), (3, "expired", None),
    ]  # fmt: skip
    first, second, _ = found.history
    assert first.ready_at <= began <= first.started_at <= first.finished_at <= began + HOUR <= second.started_at
    assert (first.channel, first.consumer) == ("a", delivery.lease.consumer)
    queue.bury(engine, delivery, reason="bad", error="last")
    assert [one.error for one in queue.admin.attempts(engine, message_id, limit=2)] == [None, "last"]
    assert Queue("others").admin.attempts(engine, message_id) == ()


def test_attempts_of_what_is_done(queue: Queue, engine: Engine) -> None:
    """The attempt that completed a message is told, and the last ones of a queue are listed page by page."""
    queue.configure(engine, history=True)
    others = Queue("others")
    others.configure(engine, history=True)
    done = []
    for channel in ("a", "b", "a"):
        done += [queue.enqueue(engine, channel=channel, payload=1).message_id]
        queue.complete(engine, queue.dequeue(engine))
        others.enqueue(engine, channel="a", payload=1)
        others.complete(engine, others.dequeue(engine))
    [attempt] = queue.admin.attempts(engine, done[0])
    assert (attempt.outcome, attempt.attempt, attempt.message_id) == ("completed", 1, done[0])
    assert attempt.enqueued_at <= attempt.started_at <= attempt.finished_at

    page = queue.admin.recent_attempts(engine, limit=2)
    assert [one.message_id for one in page] == [done[2], done[1]]
    rest = queue.admin.recent_attempts(engine, limit=2, after=page.next)
    assert ([one.message_id for one in rest], rest.next) == ([done[0]], None)
    assert [one.message_id for one in queue.admin.recent_attempts(engine, channel="b")] == [done[1]]
    assert not queue.admin.recent_attempts(engine, outcome="retried")
    short = queue.admin.recent_attempts(engine, channel="b", scan=1)
    assert (list(short), short.next is not None) == ([], True)
    found = queue.admin.recent_attempts(engine, channel="b", scan=3, after=short.next)
    assert [one.message_id for one in found] == [done[1]]


def test_attempts_are_found_by_an_index(engine: Engine, database: Database) -> None:
    """Each day of the history is probed, and none is read."""
    with engine.connect() as connection:
        connection.execute(text("set enable_seqscan = off; set enable_bitmapscan = off"))
        query = "select from fq_history h where h.message_id = 7 and h.queue = 'documents'"
        plan = "\n".join(connection.scalars(text(f"explain {query}")))
    assert "Seq Scan" not in plan
    assert "Index Scan" in plan
    assert database.value("select count(*) from pg_indexes where indexname = 'fq_history_message_ix'") == 1
