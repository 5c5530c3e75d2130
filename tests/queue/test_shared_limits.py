"""Limits that several queues draw from: exact over all of them, and shared in equal parts."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import InvalidArgument, Queue, Rate
from sqlalchemy_fairqueue.values.messages import Delivery
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.queue.seeds import seed

A, B, C = Queue("a"), Queue("b"), Queue("c")
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def _seed(engine: Engine, queue: Queue, count: int) -> None:
    seed(queue, engine, *(f"{number % 3}" for number in range(count)))


def _share(engine: Engine, *queues: Queue, **limit: object) -> None:
    A.limits.configure(engine, "api", **limit)  # type: ignore[call-overload]
    for queue in queues:
        queue.configure(engine, limits=["api"])


def _take(engine: Engine, queue: Queue, limit: int = 100, lease: timedelta = 10 * HOUR) -> list[Delivery]:
    return queue.dequeue(engine, limit=limit, lease=lease)


def test_a_limit_holds_over_all_queues(engine: Engine) -> None:
    """At most as many messages are out as it allows, whichever queues they are of; one that ends frees its part."""
    for queue in (A, B, C):
        _seed(engine, queue, 10)
    _share(engine, A, B, max_concurrency=4)
    first = _take(engine, A, limit=3)
    assert len(first) == 3
    assert len(_take(engine, B)) == 1
    assert (_take(engine, A), _take(engine, B)) == ([], [])
    assert len(_take(engine, C)) == 10
    A.complete(engine, first[0])
    A.retry(engine, first[1], delay=HOUR, error="later")
    assert sum(len(_take(engine, queue, limit=1)) for queue in (A, B, A, B)) == 2
    [found] = A.limits.list(engine)
    assert (found.name, found.max_concurrency, found.current_concurrency) == ("api", 4, 4)
    assert found.queues == ("a", "b")


def test_what_is_out_counts_from_the_start(engine: Engine) -> None:
    """A queue that begins to draw brings what it has out; a limit that is lowered or lifted holds for the next."""
    for queue in (A, B):
        _seed(engine, queue, 10)
    held = _take(engine, A, limit=3)
    _share(engine, A, B, max_concurrency=4)
    assert len(_take(engine, B)) == 1
    A.limits.configure(engine, "api", max_concurrency=2)
    A.complete(engine, held[0])
    assert (_take(engine, A), _take(engine, B)) == ([], [])
    A.limits.configure(engine, "api", max_concurrency=None)
    assert len(_take(engine, B)) == 9
    A.configure(engine, limits=None)
    assert len(_take(engine, A)) == 7
    assert A.limits.list(engine, "api")[0].queues == ("b",)


def test_a_rate_holds_over_all_queues(engine: Engine, clock: Clock) -> None:
    """A burst together, then one each interval; a consumer that is held back is told when to come again."""
    for queue in (A, B):
        _seed(engine, queue, 50)
    _share(engine, A, B, rate=Rate(1, per=HOUR, burst=4))
    assert len(_take(engine, A, limit=3)) == 3
    assert len(_take(engine, B)) == 1
    assert (_take(engine, A), _take(engine, B)) == ([], [])
    batch = B.dequeue(engine, limit=5, lease=10 * HOUR)
    assert batch.due_in is not None
    assert HOUR - timedelta(minutes=5) < batch.due_in <= HOUR
    clock.advance(2 * HOUR)
    assert len(_take(engine, A, limit=1)) + len(_take(engine, B, limit=1)) == 2
    assert (_take(engine, A), _take(engine, B)) == ([], [])


@pytest.mark.parametrize("greedy", [1, 100])
def test_queues_get_equal_parts(engine: Engine, still: Clock, greedy: int) -> None:
    """However much one asks for, and however often, two queues that always have messages get the same."""
    for queue in (A, B):
        _seed(engine, queue, 100)
    _share(engine, A, B, rate=Rate(10, per=SECOND, burst=10))
    taken = {"a": 0, "b": 0}
    for _ in range(25):
        still.advance(SECOND / 5)
        for queue, limit in ((A, greedy), (A, greedy), (B, 3)):
            taken[queue.name] += len(_take(engine, queue, limit=limit))
    assert 50 <= sum(taken.values()) <= 60
    assert abs(taken["a"] - taken["b"]) <= 10


def test_what_one_leaves_is_for_the_others(engine: Engine, still: Clock) -> None:
    """A queue without messages reserves nothing, and a time without any saves nothing up."""
    _seed(engine, A, 200)
    _share(engine, A, B, rate=Rate(10, per=SECOND, burst=10))
    alone = 0
    for _ in range(10):
        still.advance(SECOND)
        alone += len(_take(engine, A))
        assert _take(engine, B) == []
    assert alone == 100
    _seed(engine, B, 200)
    taken = {"a": 0, "b": 0}
    for _ in range(10):
        for queue in (A, B):
            still.advance(SECOND / 2)
            taken[queue.name] += len(_take(engine, queue))
    assert 95 <= sum(taken.values()) <= 105
    assert abs(taken["a"] - taken["b"]) <= 10


def test_a_queue_that_nobody_consumes_any_more(engine: Engine, database: Database) -> None:
    """What its consumers held when they died, and what they freed unheard, is given back to the other queues."""
    for queue in (A, B):
        _seed(engine, queue, 3)
    _share(engine, A, B, max_concurrency=3)
    one, *_ = _take(engine, A)
    A.complete(engine, one)
    database.execute("update fq_lease set expires_at = fq_now()")
    assert len(_take(engine, B)) == 3
    assert A.limits.list(engine)[0].current_concurrency == 3


def test_a_clock_that_steps_back_keeps_no_slot(engine: Engine, database: Database, clock: Clock) -> None:
    """A queue that waits for a shared limit takes what another one frees, also if it began to wait in the future."""
    for queue in (A, B):
        _seed(engine, queue, 1)
    _share(engine, A, B, max_concurrency=1)
    # Both messages are due after the step, too.
    clock.advance(2 * HOUR)
    [one] = _take(engine, A)
    for _ in range(3):
        clock.advance(SECOND / 10)
        assert _take(engine, B) == []
    clock.advance(-HOUR)
    A.complete(engine, one)
    database.execute("update fq_lease set expires_at = fq_now()")
    assert len(_take(engine, B)) == 1


def test_several_limits(engine: Engine) -> None:
    """The least of all limits holds, the queue's own included."""
    _seed(engine, A, 20)
    _seed(engine, B, 20)
    A.limits.configure(engine, "one", max_concurrency=5)
    A.limits.configure(engine, "two", max_concurrency=3)
    A.configure(engine, limits=["two", "one", "two"], max_concurrency=10)
    B.configure(engine, limits=["one"])
    assert len(_take(engine, A)) == 3
    assert len(_take(engine, B)) == 2
    A.configure(engine, limits=["one"])
    assert _take(engine, A) == []


def test_two_dequeues_at_the_same_time(engine: Engine, connect: Connect, waits: Waits) -> None:
    """While one draws, another queue of the limit takes nothing, waits for nothing, and is due again at once."""
    for queue in (A, B):
        _seed(engine, queue, 3)
    _share(engine, A, B, max_concurrency=3)
    _take(engine, A, limit=1)
    drawing = connect()
    drawing.exec_driver_sql("select * from fq_dequeue('a', 1, 1000000000, 'me')")
    batch = waits.unhindered(lambda rival: B.dequeue(rival.engine, limit=5))
    assert (batch, batch.due_in is not None and batch.due_in <= timedelta(milliseconds=10)) == ([], True)
    drawing.rollback()
    assert len(_take(engine, B)) == 2


@pytest.mark.parametrize("before", [{"max_concurrency": 100}, {"limits": ["other"]}], ids=["its own limit", "another"])
def test_a_limit_that_is_set_while_a_dequeue_is_under_way(
    engine: Engine, connect: Connect, waits: Waits, before: dict[str, Any]
) -> None:
    """The dequeue that began before takes nothing by the limits of then, and is due again at once."""
    _seed(engine, A, 20)
    A.limits.configure(engine, "other", max_concurrency=100)
    A.limits.configure(engine, "api", max_concurrency=2)
    A.configure(engine, **before)
    A.complete(engine, _take(engine, A, limit=1))
    holder = connect()
    # A dequeue reads the limits before it locks the state of the queue.
    holder.exec_driver_sql("lock table fq_queue_state in exclusive mode")
    rival = waits.start(lambda other: Queue("a").dequeue(other, limit=20)).blocked()
    A.configure(holder, limits=["api"])
    holder.commit()
    batch = rival.result()
    assert (batch, batch.due_in is not None and batch.due_in <= timedelta(milliseconds=10)) == ([], True)
    assert len(_take(engine, A)) == 2


def test_bad_limits(engine: Engine) -> None:
    """Limits that are not there, are used, or make no sense are refused, and nothing is changed."""
    with pytest.raises(InvalidArgument, match="there is no limit api"):
        A.configure(engine, limits=["api"])
    _share(engine, A, B, rate="5/s")
    with pytest.raises(InvalidArgument, match="the limit api is that of b, a"):
        A.limits.remove(engine, "api")
    with Session(engine) as session:
        A.limits.remove(session, "api")
        for queue in (A, B):
            queue.configure(session, limits=None)
        session.commit()
    assert A.limits.list(engine) == []
    A.limits.remove(engine, "api")
