"""Heartbeats without a database: the leases that they extend, and what an answer proves."""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.worker.duties import Heartbeat
from sqlalchemy_fairqueue.worker.leases import TrackedLease
from sqlalchemy_fairqueue.worker.telemetry import WorkerLog, WorkerStats
from sqlalchemy_fairqueue.worker.timings import Timings

_LEASE_ID = 7


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
        return [(_LEASE_ID, 1, [])]


class _Served:
    """As much of a served queue as a heartbeat needs."""

    def __init__(self, lease: TrackedLease) -> None:
        self.queue = Queue("documents")
        self.target = None
        self._lease = lease

    def held(self) -> list[TrackedLease]:
        return [self._lease]


@pytest.fixture
def time() -> _Time:
    """The time that heartbeats and leases go by."""
    return _Time()


def _heartbeat(time: _Time, *leases: TrackedLease) -> Heartbeat:
    """The heartbeat of a queue for each of these leases, whose duration is 30 seconds."""
    for lease in leases:
        lease.held.add(cast("Any", object()))
    options: Any = SimpleNamespace(
        clock=time.clock,
        lease=timedelta(seconds=30),
        name="me",
        timings=Timings(),
        log=WorkerLog("me"),
        stats=WorkerStats(),
    )
    return Heartbeat(cast("Any", time), options, [cast("Any", _Served(lease)) for lease in leases], lambda _: None)


@pytest.fixture
def beat(time: _Time) -> Callable[[float], TrackedLease]:
    """One heartbeat for a lease of 30 seconds under which something is held, and which is alive until then."""

    def beat_once(deadline: float) -> TrackedLease:
        lease = TrackedLease(_LEASE_ID, deadline, time.clock)
        _heartbeat(time, lease).extend_all()
        return lease

    return beat_once


def test_an_extension_counts_from_before_it_was_sent(time: _Time, beat: Callable[[float], TrackedLease]) -> None:
    """However long the answer takes, the lease is known to be alive for its time from when it was asked for."""
    assert (beat(110.0).deadline, time.now) == (130.0, 105.0)


def test_a_locked_queue_leaves_the_others_their_time() -> None:
    """Each queue that does not answer costs the others a part of their leases, and never all of it."""
    time = _Time()

    def run(*_: object, within: float, **__: object) -> list[tuple[int, int, list[int]]]:
        time.calls += 1
        if time.calls == len(leases):
            return [(_LEASE_ID, 1, [])]
        time.now += within
        raise TimeoutError

    leases = [TrackedLease(_LEASE_ID, 130.0, time.clock) for _ in range(3)]
    cast("Any", time).run = run
    with pytest.raises(TimeoutError):
        _heartbeat(time, *leases).extend_all()
    assert [lease.lost for lease in leases] == [False] * 3
    assert leases[-1].deadline == time.now + 30


def test_what_is_lost_is_not_extended(time: _Time, beat: Callable[[float], TrackedLease]) -> None:
    """Its messages are for others now: an extension would keep them from it."""
    beat(100.0)
    assert time.calls == 0
