"""Costs: declared at the enqueue, corrected by the verbs that settle, and what a queue shares by."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.times import instant
from tests.fixtures.database import Database

_COSTS = "select cost from fq_message order by id"
_TAG = "select (max(tag) + 9000000000000000000) / 2520 from fq_channel_state"


def _corrections(database: Database) -> list[int]:
    found = database.rows("select cost from fq_signal where cost is not null order by id")
    return [row[0] for row in found]


def test_costs_are_kept_with_messages(queue: Queue, engine: Engine, database: Database) -> None:
    """However they are enqueued: recorded, in bulk, at once. A cost of 1 needs no room."""
    with Session(engine) as session, session.begin():
        queue.enqueue(session, channel="a", payload=1, cost=7)
        queue.enqueue_many(session, [Enqueue(channel="a", payload=1, cost=cost) for cost in (1, 3)])
        queue.enqueue_many(session, [Enqueue(channel="a", payload=1) for _ in range(2)])
    for cost in (7, 10**9):
        queue.enqueue(engine, channel="a", payload=1, key="k", on_duplicate="replace", cost=cost)
    found = sorted(row[0] or 1 for row in database.rows(_COSTS))
    assert found == [1, 1, 1, 3, 7, 10**9]
    assert [row[0] for row in database.rows(_COSTS)].count(None) == 3


def test_verbs_correct_costs(queue: Queue, engine: Engine, database: Database) -> None:
    """The channel is told the difference, in the transaction that settles; without a cost nothing."""
    queue.configure(engine, fair_by="cost")
    for verb in ("complete", "retry", "bury"):
        settle = getattr(queue, verb)
        for on_engine in (True, False):
            queue.enqueue_many(engine, [Enqueue(channel="a", payload=1, cost=cost) for cost in (10, 20, 30)])
            one, two, three = queue.dequeue(engine, limit=3)
            with Session(engine) as session, session.begin():
                own: Any = engine if on_engine else session
                settle(own, [one, two], cost=25)
                settle(own, three)
                assert _corrections(database) == ([20] if on_engine else [])
            assert _corrections(database) == [20]
            tag = int(database.rows(_TAG)[0][0])
            queue.purge(engine, "a")
            queue.dequeue(engine)
            assert int(database.rows(_TAG)[0][0]) >= tag + 20


def test_a_lost_delivery_corrects_nothing(queue: Queue, engine: Engine, database: Database) -> None:
    """A settlement is sent again when its answer was lost: the cost counts once."""
    queue.configure(engine, fair_by="cost")
    queue.enqueue(engine, channel="a", payload=1)
    [delivery] = queue.dequeue(engine)
    queue.complete(engine, delivery, cost=9)
    assert _corrections(database) == [8]
    with pytest.raises(Exception, match="lost"):
        queue.complete(engine, delivery, cost=9)
    assert _corrections(database) == [8]


def test_messages_are_what_counts_at_first(queue: Queue, engine: Engine, database: Database) -> None:
    """A queue that was not configured is fair by messages: costs have no effect, and nobody is told of them."""
    queue.enqueue(engine, channel="a", payload=1, cost=50)
    queue.enqueue(engine, channel="a", payload=1, cost=50)
    [delivery] = queue.dequeue(engine)
    tag = database.value("select tag from fq_channel_state")
    queue.complete(engine, delivery, cost=9)
    assert _corrections(database) == []
    queue.dequeue(engine)
    assert database.value("select tag from fq_channel_state") == tag + 2520


_RECORDED = "select channel, outcome, cost from fq_history order by message_id, attempt"


@pytest.mark.parametrize(("where", "fair_by"), [("engine", "messages"), ("session", "cost")])
def test_the_history_has_the_settled_cost(
    queue: Queue, engine: Engine, database: Database, where: str, fair_by: Any
) -> None:
    """What the settlement said, else what was charged, for each way to end, whatever the queue shares by."""
    queue.configure(engine, history=True, fair_by=fair_by)
    for cost in (10, 20, 30, 40, 1):
        queue.enqueue(engine, channel="a", payload=1, cost=cost)
    one, two, three, four, five = sorted(queue.dequeue(engine, limit=5), key=lambda one: one.message_id)
    with Session(engine) as session, session.begin():
        own: Any = engine if where == "engine" else session
        queue.complete(own, one, cost=25)
        queue.retry(own, two, cost=0)
        queue.bury(own, three, cost=7)
        queue.release(own, four)
        queue.complete(own, five)
    assert [row[-1] for row in database.rows(_RECORDED)] == [25, 0, 7, 40, 1]


def test_a_batch_has_each_cost_of_its_own(queue: Queue, engine: Engine, database: Database) -> None:
    """A settlement of several gives each its cost; one whose savepoint is undone leaves nothing to the next."""
    queue.configure(engine, history=True, fair_by="cost")
    queue.enqueue_many(engine, [Enqueue(channel=str(number), payload=1, cost=5) for number in range(4)])
    deliveries = queue.dequeue(engine, limit=4)
    with Session(engine) as session, session.begin():
        queue.complete(session, deliveries[0], cost=100)
        queue.complete(session, deliveries[1], cost=200)
        session.flush()
        with session.begin_nested() as savepoint:
            queue.complete(session, deliveries[2], cost=300)
            session.flush()
            savepoint.rollback()
        queue.complete(session, deliveries[2])
        queue.complete(session, deliveries[3], cost=400)
    found = {row[0]: row[-1] for row in database.rows(_RECORDED)}
    costs = zip((one.channel for one in deliveries), (100, 200, 5, 400), strict=True)
    assert found == dict(costs)


def test_stats_tell_what_was_served(queue: Queue, engine: Engine) -> None:
    """The costs of the last minutes by channel, and of the queue; nothing where no history is recorded."""
    queue.enqueue(engine, channel="a", payload=1)
    assert (queue.stats(engine).served_cost, queue.channels(engine)[0].served_cost) == (None, None)
    queue.configure(engine, history=True)
    for channel, cost in (("a", 3), ("b", 40), ("b", 50)):
        queue.enqueue(engine, channel=channel, payload=1, cost=cost)
    queue.enqueue(engine, channel="c", payload=1, at=datetime.now(UTC) + timedelta(days=1))
    other = Queue("other")
    other.configure(engine, history=True)
    other.enqueue(engine, channel="a", payload=1, cost=1000)
    for one in (queue, other):
        for delivery in one.dequeue(engine, limit=10):
            one.complete(engine, delivery)
    found = {one.channel: one.served_cost for one in queue.channels(engine)}
    assert found == {"a": 4, "b": 90, "c": 0}
    stats = queue.stats(engine)
    assert stats.served_cost == 94
    assert stats.served_since is not None
    age = datetime.now(UTC) - stats.served_since
    assert timedelta(minutes=4) < age < timedelta(minutes=30)


_HISTORY = """
insert into fq_history (
  queue, channel_id, channel, message_id, kind, attempt, enqueued_at, ready_at, started_at, finished_at, outcome, cost
)
select :queue, c.id, c.name, g, 'k', 1, t.at, t.at, t.at, t.at, 'completed', :cost
from fq_channel c
cross join generate_series(1, :count) g
cross join lateral (select fq_now() - :age - 1000 * (:count - g) as at) t
"""


def test_a_sample_of_what_was_served(queue: Queue, engine: Engine, database: Database) -> None:
    """Of many attempts that ended lately the last 2,000 count, since the oldest of them; of few, five minutes."""
    queue.enqueue(engine, channel="a", payload=1)
    queue.configure(engine, history=True)
    database.execute(_HISTORY, queue=queue.name, age=600_000_000, count=300, cost=1)
    assert queue.stats(engine).served_cost == 0
    database.execute(_HISTORY, queue=queue.name, age=0, count=199, cost=1)
    stats = queue.stats(engine)
    assert stats.served_cost == 199
    assert stats.served_since is not None
    assert datetime.now(UTC) - stats.served_since > timedelta(minutes=4)
    database.execute(_HISTORY, queue=queue.name, age=0, count=2000, cost=3)
    stats = queue.stats(engine)
    assert stats.served_cost == 6000
    since = database.value("select min(finished_at) from fq_history where cost = 3")
    assert stats.served_since == instant(since)
    assert queue.channels(engine)[0].served_cost == 6000
