"""Quotas in cost: of channels, of the plans they follow, of queues, and shared ones."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Batch, Delivery, Enqueue, Queue, Rate, Worker
from sqlalchemy_fairqueue.errors import InvalidArgument
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
LONG = timedelta(hours=10)

Limit = Callable[..., None]


@pytest.fixture(params=["channel", "plan", "queue", "shared"])
def limit(request: pytest.FixtureRequest, queue: Queue, engine: Engine) -> Limit:
    """What sets a quota of the messages of channel ``a``, by one of the four ways."""

    def limit(**quota: Any) -> None:
        match request.param:
            case "channel":
                queue.configure_channel(engine, "a", **quota)
            case "queue":
                queue.configure(engine, **quota)
            case "plan":
                queue.plans.configure(engine, "gold", **quota)
                queue.configure_channel(engine, "a", plan="gold")
            case _:
                queue.limits.configure(engine, "tokens", **quota)
                queue.configure(engine, limits=["tokens"])

    return limit


def _add(queue: Queue, engine: Engine, *costs: int, channel: str = "a") -> None:
    queue.enqueue_many(engine, [Enqueue(channel=channel, payload=cost, cost=cost) for cost in costs])


def _take(queue: Queue, engine: Engine, limit: int = 100) -> list[Delivery]:
    return list(queue.dequeue(engine, limit=limit, lease=LONG))


def _costs(deliveries: list[Delivery]) -> list[int]:
    return [one.payload for one in deliveries]


def test_what_is_out_costs_no_more(queue: Queue, engine: Engine, limit: Limit) -> None:
    """Messages go out while they fit, and nothing passes one that waits; what costs more goes out alone."""
    limit(max_cost_out=100)
    _add(queue, engine, 60, 30, 20, 10, 500, 1)
    first = _take(queue, engine)
    assert _costs(first) == [60, 30]
    assert _take(queue, engine) == []
    queue.complete(engine, first[1])
    second = _take(queue, engine)
    assert _costs(second) == [20, 10]
    queue.complete(engine, [first[0], second[0]])
    assert _take(queue, engine) == []
    queue.retry(engine, second[1], delay=LONG)
    alone = _take(queue, engine)
    assert _costs(alone) == [500]
    assert _take(queue, engine) == []
    queue.bury(engine, alone)
    assert _costs(_take(queue, engine)) == [1]


def test_what_is_out_counts_from_the_start(queue: Queue, engine: Engine, limit: Limit) -> None:
    """A limit that is set while messages are out counts them; lifted it holds nothing back; set again it is exact."""
    _add(queue, engine, 50, 40, 30, 20)
    out = _take(queue, engine, limit=2)
    limit(max_cost_out=100)
    assert _take(queue, engine) == []
    queue.release(engine, out[1])
    assert _costs(_take(queue, engine)) == [40]
    limit(max_cost_out=None)
    assert _costs(_take(queue, engine)) == [30, 20]
    limit(max_cost_out=141)
    _add(queue, engine, 1, 1)
    assert _costs(_take(queue, engine)) == [1]


def test_a_rate_in_cost(queue: Queue, engine: Engine, limit: Limit, clock: Clock) -> None:
    """Messages go while less than the burst is charged; then none until that is paid."""
    limit(rate=Rate(1, per=SECOND, burst=100, of="cost"))
    _add(queue, engine, 60, 30, 20, 50, 1)
    assert _costs(_take(queue, engine)) == [60, 30, 20]
    clock.advance(10 * SECOND)
    assert _take(queue, engine) == []
    clock.advance(SECOND)
    assert _costs(_take(queue, engine)) == [50]
    clock.advance(48 * SECOND)
    assert _take(queue, engine) == []
    clock.advance(2 * SECOND)
    assert _costs(_take(queue, engine)) == [1]


@pytest.mark.parametrize("fair_by", ["messages", "cost"])
def test_a_rate_is_corrected(queue: Queue, engine: Engine, limit: Limit, clock: Clock, fair_by: Any) -> None:
    """What a settlement says of a cost counts, more and less, in queues by count too."""
    queue.configure(engine, fair_by=fair_by)
    limit(rate=Rate(1, per=SECOND, burst=100, of="cost"))
    _add(queue, engine, 60, 60, 60, 60)
    one, two = _take(queue, engine)
    queue.complete(engine, one, cost=160)
    clock.advance(119 * SECOND)
    assert _take(queue, engine) == []
    clock.advance(2 * SECOND)
    assert len(_take(queue, engine, limit=1)) == 1
    queue.complete(engine, two, cost=0)
    assert len(_take(queue, engine)) == 1


def test_a_quota_in_seconds(queue: Queue, engine: Engine, limit: Limit, database: Database) -> None:
    """Where costs are milliseconds, what a channel's messages took lately is what the next one is charged."""
    queue.configure(engine, fair_by="seconds")
    limit(max_cost_out=1000)
    queue.enqueue_many(engine, [Enqueue(channel="a", payload=n) for n in range(9)])
    one = _take(queue, engine)
    assert len(one) == 1
    queue.complete(engine, one, cost=400)
    assert len(_take(queue, engine)) == 2
    assert database.value("select sum(charged) from fq_message") == 800


@pytest.mark.many
def test_batches_stay_below(queue: Queue, engine: Engine, limit: Limit) -> None:
    """What follows a message in the batch of its handler counts."""
    limit(max_cost_out=100)
    taken: list[list[int]] = []

    @queue.handler("embed", batch=Batch(max_messages=50))
    def embed(deliveries: list[Delivery]) -> None:
        taken.append(_costs(deliveries))

    for cost in (60, 30, 20, 90, 5):
        queue.enqueue(engine, channel="a", kind="embed", payload=cost, cost=cost)
    Worker(engine, queue, concurrency=1).run(drain=True)
    assert [one for batch in taken for one in batch] == [60, 30, 20, 90, 5]
    assert all(sum(batch) <= 100 for batch in taken)
    assert len(taken) < 5


@pytest.mark.parametrize("seed", range(3))
def test_any_course(queue: Queue, engine: Engine, still: Clock, limit: Limit, seed: int) -> None:
    """Of any course: never above the quota but alone, what fits is not held back, and the count ends at zero."""
    chance = Random(seed)  # noqa: S311 - a course that can be repeated
    most = 100
    queue.configure(engine, fair_by=chance.choice(["messages", "cost"]))
    limit(max_cost_out=most)
    waiting: list[int] = []
    out: list[Delivery] = []
    for _ in range(60):
        action = chance.choice(["add", "take", "take", "end", "limit", "clock"])
        if action == "add":
            costs = [chance.choice([1, 5, 20, 60, 99, 100, 150]) for _ in range(chance.randint(1, 4))]
            _add(queue, engine, *costs)
            waiting += costs
        elif action == "take":
            held, wanted = sum(_costs(out)), chance.randint(1, 5)
            expected: list[int] = []
            for cost in waiting[:wanted]:
                if held + cost > most and held:
                    break
                expected.append(cost)
                held += cost
            got = _take(queue, engine, limit=wanted)
            assert _costs(got) == expected
            waiting = waiting[len(expected) :]
            out += got
        elif action == "end" and out:
            ended = [out.pop(chance.randrange(len(out))) for _ in range(chance.randint(1, len(out)))]
            settle: Any = chance.choice([queue.complete, queue.bury])
            settle(engine, ended)
        elif action == "limit":
            most = chance.choice([50, 100, 120])
            limit(max_cost_out=most)
        else:
            still.advance(MINUTE)
    queue.complete(engine, out)
    queue.purge(engine, "a")
    queue.dequeue(engine)
    assert not queue.stats(engine).current_cost
    assert [one.current_cost for one in queue.channels(engine)] == [0]


@pytest.mark.many
def test_consumers_at_the_same_time(engine: Engine, limit: Limit, database: Database) -> None:
    """Four consumers that take, complete, release and retry: at no commit more is out than the quota."""
    limit(max_cost_out=100)
    seeded, over = Queue("documents"), []
    costs = [5, 20, 60, 99, 100, 150] * 6
    _add(seeded, engine, *costs)

    def consume(number: int) -> int:
        queue, chance, done = Queue("documents"), Random(number), 0  # noqa: S311 - any order will do
        while database.value("select count(*) from fq_message"):
            for one in _take(queue, engine, limit=chance.randint(1, 4)):
                held = "select count(*) > 1 and sum(cost) > 100 from fq_message where lease_id is not null"
                over.append(database.value(held))
                end = chance.choice(["complete", "complete", "complete", "release", "retry"])
                getattr(queue, end)(engine, one)
                done += end == "complete"
        return done

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(consume, range(4))) == len(costs)
    assert True not in over


def test_queues_share_a_quota(queue: Queue, engine: Engine, still: Clock) -> None:
    """Two queues that always have messages draw equal costs from a shared quota."""
    other = Queue("other")
    queue.limits.configure(engine, "tokens", rate=Rate(10, per=SECOND, burst=40, of="cost"))
    for each, cost in (queue, 40), (other, 10):
        each.configure(engine, limits=["tokens"])
        _add(each, engine, *[cost] * 200)
    spent = {queue.name: 0, other.name: 0}
    for _ in range(100):
        for each in queue, other:
            spent[each.name] += sum(_costs(_take(each, engine, limit=1)))
        still.advance(SECOND / 4)
    assert sum(spent.values()) <= 40 + 25 * 10 + 40
    assert abs(spent[queue.name] - spent[other.name]) <= 80, spent


def test_a_rate_of_something_else() -> None:
    """It is refused by name."""
    with pytest.raises(InvalidArgument, match="what a rate is of is 'tokens'"):
        Rate(1, of="tokens")  # type: ignore[arg-type]


def test_what_is_held_back_uses_no_quota(queue: Queue, engine: Engine) -> None:
    """A dequeue that meets a message whose ordering key is out goes on to what fits behind it."""
    queue.configure(engine, max_cost_out=10)
    queue.enqueue_many(
        engine, [Enqueue(channel="a", payload=cost, cost=cost, ordering_key="session-1") for cost in (1, 6)]
    )
    assert _costs(_take(queue, engine, limit=1)) == [1]
    _add(queue, engine, 7, channel="b")
    assert _costs(_take(queue, engine)) == [7]


@pytest.mark.usefixtures("still")
def test_a_channel_that_waits_for_the_queue_keeps_its_place(queue: Queue, engine: Engine) -> None:
    """Its second message does not fit its own quota: that says nothing of the first, which waits for the queue's."""
    queue.configure(engine, max_cost_out=8)
    queue.configure_channel(engine, "a", max_cost_out=7)
    _add(queue, engine, 4, channel="b")
    [out] = _take(queue, engine)
    _add(queue, engine, 5, 5)
    assert _take(queue, engine) == []
    queue.complete(engine, out)
    assert _costs(_take(queue, engine)) == [5]
