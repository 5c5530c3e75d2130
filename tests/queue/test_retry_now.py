"""Messages that are tried at once: scheduled ones, those that wait for their next attempt, and dead ones."""

from datetime import timedelta
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
from tests.model.invariants import HELD, LEFT

_HELD = HELD.replace("(select last_value from public.test_clock)", "fq_now()")
HOUR = timedelta(hours=1)


def _enqueue(queue: Queue, engine: Engine, *payloads: object, channel: str = "a", **fields: Any) -> list[int]:
    receipts = queue.enqueue_many(engine, [Enqueue(channel=channel, payload=one, **fields) for one in payloads])
    return [receipt.message_id or 0 for receipt in receipts]


def _taken(queue: Queue, engine: Engine) -> list[object]:
    taken = []
    while deliveries := queue.dequeue(engine, limit=1):
        taken += [one.payload for one in deliveries]
        queue.complete(engine, deliveries)
    return taken


def test_by_name(queue: Queue, engine: Engine) -> None:
    """A key or an ordering key stands for a message that waits; of an ordering key the next one is made due."""
    _enqueue(queue, engine, "first", key="k", ordering_key="s", delay=HOUR)
    _enqueue(queue, engine, "second", ordering_key="s", delay=HOUR)
    assert queue.admin.retry_now(engine, channel="a", key="other") == "missing"
    assert queue.admin.retry_now(engine, channel="a", ordering_key="s") == "due"
    assert queue.admin.retry_now(engine, channel="a", key="k") == "unchanged"
    assert _taken(queue, engine) == ["first"]
    assert queue.admin.retry_now(engine, channel="a", ordering_key="s") == "due"
    assert _taken(queue, engine) == ["second"]


def test_one_that_is_scheduled(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """It is due at once, and comes in its channel as if it had had no delay."""
    _enqueue(queue, engine, "first")
    clock.advance(timedelta(seconds=1))
    [scheduled] = _enqueue(queue, engine, "scheduled", delay=HOUR)
    clock.advance(timedelta(seconds=1))
    _enqueue(queue, engine, "last")
    assert len(queue.dequeue(engine, limit=1)) == 1
    assert queue.admin.retry_now(engine, scheduled) == "due"
    assert database.rows(_HELD) == []
    assert queue.admin.retry_now(engine, scheduled) == "unchanged"
    [stats] = queue.channels(engine)
    assert (stats.ready, stats.scheduled) == (2, 0)
    assert _taken(queue, engine) == ["scheduled", "last"]


def test_one_that_waits_for_its_next_attempt(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """Its attempts stay counted; the history says that it was ready from the call on."""
    queue.configure(engine, history=True)
    [message_id] = _enqueue(queue, engine, 1)
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
    [message_id] = _enqueue(queue, engine, 1, key="k")
    queue.bury(engine, queue.dequeue(engine), reason="bad")
    [other] = _enqueue(queue, engine, 2, key="k")
    assert queue.admin.retry_now(engine, message_id) == "duplicate"
    queue.cancel(engine, other)
    assert queue.admin.retry_now(engine, message_id) == "redriven"
    assert _taken(queue, engine) == [1]
    assert queue.admin.retry_now(engine, message_id) == "missing"


def test_what_stays(queue: Queue, engine: Engine, database: Database) -> None:
    """One that a consumer holds, one of another queue and one that never was stay as they are."""
    [held] = _enqueue(queue, engine, 1)
    assert queue.dequeue(engine)
    [scheduled] = _enqueue(queue, engine, 2, delay=HOUR)
    before = database.rows("select * from fq_message order by id")
    assert queue.admin.retry_now(engine, held) == "leased"
    assert Queue("others").admin.retry_now(engine, scheduled) == "missing"
    assert queue.admin.retry_now(engine, scheduled + 1) == "missing"
    assert database.rows("select * from fq_message order by id") == before


@pytest.mark.parametrize("aging", [None, timedelta(minutes=1)])
def test_a_priority(queue: Queue, engine: Engine, clock: Clock, database: Database, aging: Any) -> None:
    """It has its priority from the call on, once, also when the time comes for which it was scheduled."""
    queue.configure_channel(engine, "a", ChannelPolicy(priority_aging=aging))
    _enqueue(queue, engine, "ordinary")
    [urgent] = _enqueue(queue, engine, "urgent", priority=3, delay=HOUR)
    assert queue.admin.retry_now(engine, urgent) == "due"
    assert database.rows(_HELD) == []
    [delivery] = queue.dequeue(engine, limit=1)
    assert delivery.payload == "urgent"
    queue.retry(engine, delivery, delay=2 * HOUR)
    clock.advance(HOUR + timedelta(minutes=1))
    assert _taken(queue, engine) == ["ordinary"]
    clock.advance(HOUR)
    assert _taken(queue, engine) == ["urgent"]
    assert database.value("select count(*) from fq_promotion") == 0


def test_limits_hold(queue: Queue, engine: Engine) -> None:
    """A pause and a limit of the channel hold for it, too."""
    [message_id] = _enqueue(queue, engine, 1, delay=HOUR)
    queue.pause(engine, "a")
    assert queue.admin.retry_now(engine, message_id) == "due"
    assert not queue.dequeue(engine)
    found = queue.message(engine, message_id)
    assert found is not None
    assert found.wait is not None
    assert found.wait.reason == "paused"
    queue.resume(engine, "a")
    assert _taken(queue, engine) == [1]


def test_in_a_transaction(queue: Queue, engine: Engine, database: Database) -> None:
    """It is part of it, undone by its rollback, and counts as a settlement in its lock order."""
    [message_id] = _enqueue(queue, engine, 1, delay=HOUR)
    with Session(engine) as session:
        assert queue.admin.retry_now(session, message_id) == "due"
        with pytest.raises(LockOrderError):
            queue.enqueue(session.connection(), channel="c", payload=1)
        session.rollback()
    assert not queue.dequeue(engine)
    assert database.rows(_HELD) == []


def test_it_waits_for_a_cancel(queue: Queue, engine: Engine, connect: Connect, waits: Waits) -> None:
    """A message that another transaction withdraws is missing when that commits, and not tried."""
    [message_id] = _enqueue(queue, engine, 1, delay=HOUR)
    holder = connect()
    queue.cancel(holder, message_id)
    rival = waits.start(lambda own: queue.admin.retry_now(own, message_id)).blocked()
    holder.commit()
    assert rival.result() == "missing"


def test_attempts(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Those that did not complete a message are told, however they ended, as long as the queue records them."""
    [message_id] = _enqueue(queue, engine, 1, max_attempts=5)
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
    found = queue.message(engine, message_id)
    assert found is not None
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
