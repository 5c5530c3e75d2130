"""Keys: unique among the messages of a channel that are not done. An enqueue whose key is taken skips or replaces.

One that raises is in test_backlogs.
"""

from datetime import timedelta
from functools import partial

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue, Receipt
from sqlalchemy_fairqueue.values.messages import OnDuplicate
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits


def _enqueue(
    queue: Queue,
    engine: Engine,
    payload: object,
    on_duplicate: OnDuplicate = "skip",
    delay: timedelta | None = None,
) -> Receipt:
    return queue.enqueue(engine, channel="a", payload=payload, key="k", on_duplicate=on_duplicate, delay=delay)


def test_replace_rewrites(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A replaced message has the new content, kind, headers, time and attempts, and its old id and enqueued_at."""
    queue.enqueue(engine, channel="a", payload="old", key="k", kind="old", max_attempts=2, headers={"old": 1})
    [delivery] = queue.dequeue(engine)
    queue.retry(engine, delivery, error="once")
    queue.enqueue(engine, channel="a", payload="new", key="k", kind="new", max_attempts=5, on_duplicate="replace")
    clock.advance(timedelta(seconds=1))
    [again] = queue.dequeue(engine)
    assert (again.message_id, again.enqueued_at) == (delivery.message_id, delivery.enqueued_at)
    assert (again.payload, again.kind, again.headers) == ("new", "new", None)
    assert (again.attempt, again.max_attempts) == (1, 5)


def test_debounce(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Enqueued again and again with a delay, a message comes once, that long after the last time."""
    for number in range(3):
        _enqueue(queue, engine, number, "replace", timedelta(hours=1))
        clock.advance(timedelta(minutes=40))
        assert queue.dequeue(engine) == []
    clock.advance(timedelta(minutes=20))
    [delivery] = queue.dequeue(engine, limit=10)
    assert delivery.payload == 2


def test_mixed_policies(queue: Queue, engine: Engine) -> None:
    """Messages of one batch have each their own policy, in the order in which they were given."""
    one = partial(Enqueue, channel="a", key="k")
    with Session(engine) as session:
        receipts = queue.enqueue_many(
            session,
            [
                one(payload=1),
                one(payload=2),
                one(payload=3, on_duplicate="replace"),
                one(payload=4, key="other", on_duplicate="raise"),
                Enqueue(channel="a", payload=5),
            ],
        )
        session.commit()
    assert [receipt.outcome for receipt in receipts] == ["created", "duplicate", "replaced", "created", "created"]
    assert [receipt.created for receipt in receipts] == [True, False, False, True, True]
    assert receipts[0].message_id == receipts[1].message_id == receipts[2].message_id
    assert sorted(delivery.payload for delivery in queue.dequeue(engine, limit=10)) == [3, 4, 5]


def test_replacing_and_settling_wait_for_nobody_in_a_circle(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits
) -> None:
    """A transaction that replaces and completes takes all its messages in one order, so that two of them just wait."""
    queue.enqueue(engine, channel="a", payload="low")
    queue.enqueue(engine, channel="b", payload="high", key="k")
    [low] = queue.dequeue(engine)
    assert low.payload == "low"
    holder = connect()
    queue.complete(holder, low)

    def replace_and_complete(rival: Engine) -> str | None:
        with Session(rival) as session:
            receipt = queue.enqueue(session, channel="b", payload="new", key="k", on_duplicate="replace")
            queue.cancel(session, low.message_id)
            session.commit()
        return receipt.outcome

    def lock_the_other(third: Engine) -> None:
        with third.begin() as connection:
            connection.exec_driver_sql("select from fq_message where key = 'k' for update")

    rival = waits.start(replace_and_complete).blocked()
    # It waits for the lower id and has not yet locked the higher one.
    waits.unhindered(lock_the_other)
    holder.commit()
    assert rival.result() == "replaced"


def test_within_one_transaction(queue: Queue, engine: Engine, database: Database) -> None:
    """Of one key in one transaction the first stands; the others' receipts name it, and other channels are free."""
    with Session(engine) as session:
        receipts = [queue.enqueue(session, channel=name, payload=1, key="k") for name in "aab"]
        receipts += queue.enqueue_many(session, [Enqueue(channel=name, payload=2, key="k") for name in "ab"])
        session.commit()
    assert [one.created for one in receipts] == [True, False, True, False, False]
    assert receipts[0].message_id == receipts[1].message_id == receipts[3].message_id
    assert database.value("select count(*) from fq_message") == 2


def test_until_it_is_done(queue: Queue, engine: Engine) -> None:
    """The key stands while its message is ready, leased and retried, and is free once it is completed or buried."""
    first = _enqueue(queue, engine, 1)
    for end in (queue.complete, queue.bury):
        assert _enqueue(queue, engine, 2).created is False
        [delivery] = queue.dequeue(engine)
        assert _enqueue(queue, engine, 2).created is False
        queue.retry(engine, delivery)
        assert _enqueue(queue, engine, 2).message_id == delivery.message_id
        [delivery] = queue.dequeue(engine)
        end(engine, delivery)
        again = _enqueue(queue, engine, 2, "raise")
        assert again.created
        assert again.message_id != first.message_id


def test_waits_for_an_open_end(queue: Queue, engine: Engine, connect: Connect, waits: Waits) -> None:
    """A key whose message an open transaction completes or retries is waited for, and then free or not."""
    _enqueue(queue, engine, 1)
    for verb in ("retry", "complete"):
        holder = connect()
        getattr(queue, verb)(holder, queue.dequeue(engine))
        rival = waits.start(lambda own: _enqueue(queue, own, 2)).blocked()
        holder.commit()
        assert rival.result().created is (verb == "complete")


def test_completion_in_the_same_transaction(queue: Queue, engine: Engine, database: Database) -> None:
    """A follow-up with the key of the message that the same session completes is not added: enqueues go first."""
    _enqueue(queue, engine, 1)
    [delivery] = queue.dequeue(engine)
    with Session(engine) as session:
        queue.complete(session, delivery)
        receipt = queue.enqueue(session, channel="a", payload=2, key="k")
        session.commit()
    assert receipt.created is False
    assert database.value("select count(*) from fq_message") == 0
