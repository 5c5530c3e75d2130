"""Rates of a whole queue: exact over all of its channels, together with its limit and theirs."""

from datetime import datetime, timedelta
from random import Random

from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy, Queue, Rate
from tests.fixtures.clock import Clock
from tests.queue.seeds import seed

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def _taken(queue: Queue, engine: Engine, limit: int = 100) -> str:
    return "".join(delivery.channel for delivery in queue.dequeue(engine, limit=limit))


def test_a_rate_holds_over_all_channels(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A burst at once, then one each interval, in turn; a queue beside it is not touched."""
    seed(queue, engine, *"aaabbbccc")
    seed(Queue("other"), engine, *"xyz")
    queue.configure(engine, rate=Rate(1, per=HOUR, burst=2))
    assert _taken(queue, engine) == "ab"
    assert _taken(queue, engine) == ""
    assert _taken(Queue("other"), engine) == "xyz"
    clock.advance(HOUR)
    assert _taken(queue, engine) == "c"
    clock.advance(10 * HOUR)
    assert _taken(queue, engine) == "ab"
    assert queue.stats(engine).rate == Rate(1, per=HOUR, burst=2)


def test_the_next_poll_is_when_the_rate_allows(queue: Queue, engine: Engine) -> None:
    """A consumer neither polls before something may come, nor waits beyond; a lifted rate lets all go at once."""
    seed(queue, engine, *"aaaa")
    queue.configure(engine, rate=Rate(1, per=HOUR, burst=1))
    first = queue.dequeue(engine, limit=10, lease=3 * HOUR)
    assert len(first) == 1
    queue.complete(engine, first[0])
    batch = queue.dequeue(engine, limit=10, lease=3 * HOUR)
    assert (len(batch), batch.due_in is not None and HOUR - timedelta(minutes=5) < batch.due_in <= HOUR) == (0, True)
    queue.configure(engine, rate=None)
    assert _taken(queue, engine) == "aaa"
    assert queue.stats(engine).rate is None


def test_a_rate_beside_limits(queue: Queue, engine: Engine, clock: Clock) -> None:
    """The least of rate, limit and channel limits holds; each field is changed without the other."""
    seed(queue, engine, *"aaaabbbb")
    queue.configure_channel(engine, "a", ChannelPolicy(max_concurrency=1))
    queue.configure(engine, max_concurrency=3)
    queue.configure(engine, rate=Rate(1, per=SECOND, burst=2))
    assert queue.stats(engine).max_concurrency == 3
    held = queue.dequeue(engine, limit=10)
    assert "".join(delivery.channel for delivery in held) == "ab"
    clock.advance(10 * SECOND)
    held += queue.dequeue(engine, limit=10)
    assert [delivery.channel for delivery in held[2:]] == ["b"]
    clock.advance(10 * SECOND)
    assert _taken(queue, engine) == ""
    queue.configure(engine, max_concurrency=None)
    assert queue.stats(engine).rate == Rate(1, per=SECOND, burst=2)
    assert _taken(queue, engine) == "bb"


def test_a_slot_that_is_freed_at_the_limit_is_no_poll_at_the_rate(queue: Queue, engine: Engine, clock: Clock) -> None:
    """At the limit, where the rate would allow more, a consumer waits for a message to end."""
    seed(queue, engine, *"aaaa")
    queue.configure(engine, max_concurrency=1, rate="1000/s")
    assert _taken(queue, engine) == "a"
    clock.advance(SECOND)
    batch = queue.dequeue(engine, limit=10)
    assert not batch
    assert batch.due_in is None or batch.due_in > 10 * SECOND


def test_a_rate_is_no_credit_for_idle_times(queue: Queue, engine: Engine, clock: Clock) -> None:
    """After any time without work at most one burst comes at once; after a lower rate the old one owes nothing long."""
    queue.configure(engine, rate=Rate(1, per=365 * timedelta(days=1), burst=1))
    seed(queue, engine, *"aaaaaa")
    assert _taken(queue, engine) == "a"
    queue.configure(engine, rate=Rate(1, per=SECOND, burst=2))
    clock.advance(2 * SECOND)
    assert 1 <= len(_taken(queue, engine)) <= 2
    clock.advance(HOUR)
    assert len(_taken(queue, engine)) == 2


def test_no_window_has_more_than_the_rate_allows(queue: Queue, engine: Engine, clock: Clock) -> None:
    """Whenever consumers ask and for however many, no stretch of time has more than a burst and its intervals."""
    chance = Random(1)  # noqa: S311 - no secret
    rate = Rate(1, per=chance.choice([SECOND, HOUR]), burst=chance.choice([1, 3, 7]))
    seed(queue, engine, *chance.choices("abc", k=200))
    queue.configure(engine, rate=rate)
    taken: list[tuple[datetime, datetime]] = []
    for _ in range(60):
        before = clock.now()
        found = queue.dequeue(engine, limit=chance.choice([1, 2, 50]))
        taken += [(before, clock.now())] * len(found)
        if found and chance.random() < 0.3:
            queue.release(engine, found[0])
        clock.advance(rate.interval * chance.choice([0, 0.2, 0.5, 1, 1.7, 30]))
    assert len(taken) > 2 * rate.burst
    for first, (earliest, _) in enumerate(taken):
        for last in range(first + rate.burst, len(taken)):
            assert taken[last][1] - earliest >= (last - first - rate.burst + 1) * rate.interval
