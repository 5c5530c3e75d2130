"""Leases of a worker, what it holds under them, and the heartbeats that extend them, without a database."""

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import create_engine

from sqlalchemy_fairqueue import Lease, Queue, Worker
from sqlalchemy_fairqueue.testing import make_delivery
from sqlalchemy_fairqueue.values.messages import Delivery
from sqlalchemy_fairqueue.worker.duties import Heartbeat
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, ServedQueue, TrackedLease, WorkerLease
from sqlalchemy_fairqueue.worker.telemetry import WorkerLog, WorkerStats
from sqlalchemy_fairqueue.worker.timings import Timings

_ID = 7


class _Time:
    """A clock that stands still, and a connection whose every answer takes five seconds and extends the lease."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls = 0

    def clock(self) -> float:
        return self.now

    def run(self, *_: object, **__: object) -> list[tuple[int, int, list[int]]]:
        self.calls += 1
        self.now += 5
        return [(_ID, 1, [])]


class _Served:
    """As much of a served queue as a heartbeat needs."""

    queue, target = Queue("documents"), None

    def __init__(self, lease: TrackedLease) -> None:
        self.held = lambda: [lease]


@pytest.fixture
def time() -> _Time:
    """The time that heartbeats and leases go by."""
    return _Time()


def _beat(time: _Time, *deadlines: float) -> list[TrackedLease]:
    """Leases of 30 seconds of as many queues, which are alive until then, after one heartbeat."""
    leases = [TrackedLease(_ID, deadline, time.clock) for deadline in deadlines]
    for lease in leases:
        lease.held.add(cast("Any", object()))
    options: Any = SimpleNamespace(
        clock=time.clock, lease=timedelta(seconds=30), name="me", timings=Timings(), log=WorkerLog("me"),
        stats=WorkerStats(),
    )  # fmt: skip
    try:
        Heartbeat(
            cast("Any", time), options, [cast("Any", _Served(lease)) for lease in leases], lambda _: None
        ).extend_all()
    except TimeoutError:
        assert len(leases) > 1
    return leases


def test_an_extension_counts_from_before_it_was_sent(time: _Time) -> None:
    """However long the answer takes, the lease is known to be alive for its time from when it was asked for.

    What is lost is not extended: its messages are for others now, and an extension would keep them from it.
    """
    assert [lease.deadline for lease in _beat(time, 110.0)] == [130.0]
    assert (time.now, time.calls) == (105.0, 1)
    _beat(time, 105.0)
    assert time.calls == 1


def test_a_locked_queue_leaves_the_others_their_time(time: _Time) -> None:
    """Each queue that does not answer costs the others a part of their leases, and never all of it."""

    def run(*_: object, within: float, **__: object) -> list[tuple[int, int, list[int]]]:
        time.calls += 1
        if time.calls == 3:
            return [(_ID, 1, [])]
        time.now += within
        raise TimeoutError

    cast("Any", time).run = run
    leases = _beat(time, 130.0, 130.0, 130.0)
    assert [lease.lost for lease in leases] == [False] * 3
    assert leases[-1].deadline == time.now + 30


def test_a_deadline(time: _Time) -> None:
    """The latest one counts; a lease that nobody shows to be alive is lost then, and stays lost."""
    lease = TrackedLease(1, 200.0, time.clock)
    for deadline, expected in (150.0, 200.0), (250.0, 250.0):
        lease.extend(deadline)
        assert (lease.deadline, lease.lost) == (expected, False)
    time.now = 251.0
    assert lease.lost
    lease.extend(300.0)
    assert lease.lost


def _delivery(lease: Lease) -> Delivery:
    return replace(make_delivery(Queue("documents"), 1), lease=lease)


def test_another_process_knows_nothing(time: _Time) -> None:
    """A delivery that is sent to another process has a lease that is not tracked there."""
    lost = TrackedLease(1, 0.0, time.clock)
    delivery = _delivery(WorkerLease(1, "me", datetime.now(UTC), lost))
    HeldDelivery(delivery, lost, cast("Any", object()), 0.0)
    copy = pickle.loads(pickle.dumps(delivery))  # noqa: S301 - our own
    assert copy.message_id == delivery.message_id
    assert not copy.lease.lost


def test_a_queue_forgets_what_is_lost_and_empty() -> None:
    """A worker has the leases that anything is held under, and no more."""
    options = Worker(create_engine("postgresql+psycopg://"), Queue("documents"))._options
    queue = ServedQueue(options.queues[0], options, {})
    first, second = (queue.track(Lease(1, "me", datetime.now(UTC)), options.clock()) for _ in range(2))
    assert first.tracked is not None
    assert first.tracked is second.tracked
    assert queue.held() == []
    queue.hold([_delivery(first)], 0.0)
    assert queue.held() == [first.tracked]
    first.tracked.lose()
    assert queue.held() == [first.tracked]
    first.tracked.held.clear()
    assert (queue.held(), queue.leases) == ([], {})
