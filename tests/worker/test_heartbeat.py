"""What a heartbeat asks for, and what an answer proves. Without a database."""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.worker import heartbeat, leases
from sqlalchemy_fairqueue.worker.heartbeat import Heartbeat
from sqlalchemy_fairqueue.worker.leases import LeaseRegistry, TrackedLease
from sqlalchemy_fairqueue.worker.stats import WorkerStats

_LEASE_ID = 7


class _Time:
    """A clock that stands still, and a line whose every answer takes five seconds and extends the lease."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls = 0

    def run(self, *_: object, **__: object) -> list[tuple[int, int, list[int]]]:
        self.calls += 1
        self.now += 5
        return [(_LEASE_ID, 1, [])]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> _Time:
    """The time that heartbeats and claims go by."""
    time = _Time()
    for module in heartbeat, leases:
        monkeypatch.setattr(module, "monotonic", lambda: time.now)
    return time


@pytest.fixture
def beat(time: _Time) -> Callable[[TrackedLease], None]:
    """One beat for a claim under which something is held, as with a lease of 30 seconds."""

    def beat_once(claim: TrackedLease) -> None:
        claim.held.add(cast("Any", object()))
        held = LeaseRegistry()
        held._by_id[claim.lease_id] = claim
        own = Heartbeat(
            line=cast("Any", time),
            watched=(),
            sources=[cast("Any", SimpleNamespace(queue=Queue("documents"), target=None, claims=held))],
            lease=timedelta(seconds=30),
            tell=lambda _: None,
            housekeeping=None,
            stats=WorkerStats(),
            name="me",
        )
        own._beat()

    return beat_once


def test_an_extension_counts_from_before_it_was_sent(time: _Time, beat: Callable[[TrackedLease], None]) -> None:
    """However long the answer takes, the lease is proven alive for its time from when it was asked for."""
    claim = TrackedLease(_LEASE_ID, 110.0)
    beat(claim)
    assert (claim.deadline, time.now) == (130.0, 105.0)


def test_what_is_lost_is_not_extended(time: _Time, beat: Callable[[TrackedLease], None]) -> None:
    """Its messages are for others now: an extension would keep them from it."""
    beat(TrackedLease(_LEASE_ID, 100.0))
    assert time.calls == 0
