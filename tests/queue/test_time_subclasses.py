"""Subclasses of timedelta and datetime, as date libraries have them: they work wherever one is taken."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import (
    ChannelPolicy,
    Delivery,
    Enqueue,
    InvalidArgument,
    Queue,
    Rate,
    Release,
    ResultNotReady,
    Retry,
    RetryPolicy,
    Worker,
)
from sqlalchemy_fairqueue.testing import DatabaseClock
from tests.fixtures.database import Database
from tests.fixtures.times import StrangeDuration, StrangeInstant
from tests.queue.seeds import add

_HOUR = StrangeDuration(hours=1)
_TOMORROW = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
_LATER = StrangeInstant(*_TOMORROW.timetuple()[:6], tzinfo=UTC)


def test_an_enqueue(engine: Engine, database: Database) -> None:
    """A message is due when it says."""
    cases: list[tuple[dict[str, Any], timedelta | None]] = [
        ({"delay": _HOUR}, timedelta(hours=1)),
        ({"at": _LATER}, None),
        ({"key": "a", "unique_for": _HOUR}, timedelta()),
    ]
    for number, (words, late) in enumerate(cases):
        queue = Queue(f"documents {number}")
        queue.enqueue(engine, channel="a", payload=1, **words)
        queue.enqueue_many(engine, [Enqueue(channel="b", payload=1, **words)] * 2)
        due = database.rows("select to_timestamp(dequeue_at / 1e6) as at, enqueued_at from fq_message")
        for row in due:
            expected = _TOMORROW if late is None else datetime.fromtimestamp(row.enqueued_at / 1e6, UTC) + late
            assert abs(row.at - expected) < timedelta(seconds=5)
        assert len(due) == (2 if "key" in words else 3)
        database.execute("delete from fq_message")


def test_deliveries(queue: Queue, engine: Engine, database: Database) -> None:
    """Leases, retries and waits for results take as long as they say; dead letters are found by their time."""
    queue.configure(engine, result_retention=_HOUR)
    *_, last = add(queue, engine, 1, 2, 3)
    with pytest.raises(ResultNotReady):
        queue.result(engine, last, timeout=StrangeDuration(milliseconds=1))
    deliveries = queue.dequeue(engine, limit=3, lease=_HOUR)
    until = queue.extend(engine, deliveries[:1], lease=StrangeDuration(hours=2))
    assert timedelta(hours=1.9) < until - datetime.now(UTC) < timedelta(hours=2.1)
    queue.bury(engine, deliveries[2])
    assert not queue.dead_letters.list(engine, since=_LATER)
    assert queue.dead_letters.list(engine, until=_LATER)
    assert queue.dead_letters.purge(engine, before=_LATER) == 1
    queue.retry(engine, deliveries[0], delay=_HOUR)
    with Session(engine) as session, session.begin():
        queue.release(session, deliveries[1], delay=_HOUR)
    assert database.value("select min(dequeue_at) - fq_now() > 3.5e9 from fq_message")


def test_configuration(queue: Queue, engine: Engine, database: Database) -> None:
    """Settings of the queue, policies and schedules keep what they were given."""
    queue.configure(
        engine,
        history_retention=StrangeDuration(days=2),
        dead_letter_retention={None: _HOUR, "parse": _HOUR},
        forget_channels_after=_HOUR,
        result_retention=_HOUR,
        rate=Rate(10, per=_HOUR),
    )
    queue.configure_channel(engine, "a", ChannelPolicy(rate=Rate(10, per=_HOUR), priority_aging=_HOUR))
    queue.schedules.set(engine, "often", channel="a", every=_HOUR, jitter=_HOUR)
    hour = 3_600_000_000
    [row] = database.rows(
        "select history_retention, dead_letter_retention, dead_letter_retention_by_kind ->> 'parse',"
        " forget_channels_after, result_retention, rate_interval from fq_queue"
    )
    assert tuple(row) == (48 * hour, hour, str(hour), hour, hour, hour // 10)
    [schedule] = queue.schedules.list(engine)
    assert (schedule.every, schedule.jitter) == (timedelta(hours=1), timedelta(hours=1))
    assert database.value("select priority_aging from fq_channel_state") == hour


def test_values() -> None:
    """Outcomes and policies calculate with what they were given, and can be copied."""
    policy = RetryPolicy(first=StrangeDuration(seconds=5), cap=_HOUR)
    assert [policy.delay(attempt, chance=lambda: 0) for attempt in (1, 2, 99)] == [
        timedelta(seconds=5), timedelta(seconds=10), timedelta(hours=1),
    ]  # fmt: skip
    for outcome in (Retry(delay=_HOUR), Release(delay=_HOUR)):
        assert copy.deepcopy(outcome).delay == timedelta(hours=1)


@pytest.mark.parametrize("wrong", [StrangeDuration(days=400), StrangeDuration(seconds=-1)])
def test_a_bad_duration_is_refused_at_the_call(wrong: timedelta) -> None:
    """A duration that cannot be kept is refused where it is given."""
    calls: Any = [
        lambda: Retry(delay=wrong),
        lambda: Release(delay=wrong),
        lambda: Enqueue(channel="a", payload=1, delay=wrong),
        lambda: RetryPolicy(first=wrong),
        lambda: Rate(1, per=wrong),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match="give a timedelta from"):
            call()


def test_a_naive_instant_is_refused_at_the_call() -> None:
    """So is a datetime without a time zone."""
    with pytest.raises(InvalidArgument, match="has no time zone"):
        Enqueue(channel="a", payload=1, at=StrangeInstant(2030, 1, 1))


def test_the_clock_of_tests(engine: Engine) -> None:
    """A test's clock goes forward by what it is given."""
    clock = DatabaseClock(engine)
    clock.advance(_HOUR)
    clock.move_to(_LATER)
    assert clock.now() >= _TOMORROW


def test_a_worker(engine: Engine, database: Database) -> None:
    """A worker retries when it is told to, waits as it is told to, and settles all the rest."""

    class Later(Retry):
        delay = _HOUR

    for outcome in (Retry(delay=_HOUR), Retry(), Later()):
        queue = Queue(f"{outcome!r}")

        @queue.handler(retry=RetryPolicy(first=_HOUR, cap=_HOUR, jitter=0), timeout=_HOUR)
        def handle(delivery: Delivery, outcome: Retry = outcome) -> Retry | None:
            return None if delivery.payload else outcome

        queue.enqueue_many(engine, [Enqueue(channel=f"{number}", payload=number) for number in range(3)])
        worker = Worker(
            engine, queue, lease=_HOUR, grace=_HOUR, poll_interval=StrangeDuration(seconds=1), housekeeping=False
        )
        worker.run(drain=True)
        assert (worker.stats.completed, worker.stats.retried, worker.stats.failures) == (2, 1, 0)
    assert database.value("select min(dequeue_at) - fq_now() > 3.5e9 from fq_message")
