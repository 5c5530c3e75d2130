"""What a worker holds, without a database: leases, heartbeats that extend them, and the order in which it begins."""

import math
import pickle
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from sqlalchemy_fairqueue import Lease, Queue, Worker
from sqlalchemy_fairqueue.testing import make_delivery
from sqlalchemy_fairqueue.values.messages import Delivery
from sqlalchemy_fairqueue.worker.duties import Heartbeat
from sqlalchemy_fairqueue.worker.leases import Buffer, HeldDelivery, ServedQueue, TrackedLease, WorkerLease
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


@dataclass(frozen=True)
class _Delivery:
    channel: str


@dataclass(frozen=True)
class _Held:
    """As much of a held delivery as a buffer needs."""

    number: int
    queue: str
    delivery: _Delivery
    taken_at: float = 0.0


def _held(channels: str, queue: str = "q", first: int = 0) -> list[HeldDelivery]:
    held = [_Held(first + number, queue, _Delivery(channel)) for number, channel in enumerate(channels)]
    return cast("list[HeldDelivery]", held)


def test_newcomers_without_end_do_not_keep_others_waiting() -> None:
    """With each message that begins another channel comes that was never seen: who waits begins as well, and the
    buffer does not remember them all.
    """
    buffer = Buffer()
    buffer.extend(_held("www"))
    begun = []
    for number in range(5000):
        buffer.extend([cast("HeldDelivery", _Held(10 + number, "q", _Delivery(f"new {number}")))])
        begun.append(cast("_Held", buffer.pop()).delivery.channel)
    assert begun[:20].count("w") == 3
    assert len(buffer._last) < 2000


def test_channels_of_two_queues_are_two() -> None:
    """The same name in another queue is another tenant."""
    buffer = Buffer()
    buffer.extend(_held("aa"))
    buffer.extend(_held("a", queue="r", first=9))
    popped = [cast("_Held", buffer.pop()).number for _ in range(3)]
    assert popped == [0, 9, 1]


def test_nothing_is_there() -> None:
    """An empty buffer gives nothing, and remembers nobody."""
    buffer = Buffer()
    assert (len(buffer), buffer.pop(), buffer.next_taken_at()) == (0, None, math.inf)
    for channels in "aaa", "ab":
        buffer.extend(_held(channels))
        popped = [cast("_Held", buffer.pop()) for _ in channels]
        assert "".join(one.delivery.channel for one in popped) == channels


# Who comes later waits behind one of those who wait; who waits already, for one of each newcomer's.
@example(["wwwwww", 2, "m"])
@example(["aabb", 1, "ccc"])
@given(st.lists(st.one_of(st.text("abc", min_size=1, max_size=6), st.integers(1, 4)), max_size=12))
def test_each_waits_for_one_turn_of_the_others(steps: list[str | int]) -> None:
    """Nothing is lost or comes twice, a channel keeps its order, and while a channel has a message that waits, no other
    one gets more than one turn more than it, and the one that it may be in.
    """
    buffer = Buffer()
    given_: list[int] = []
    taken: list[int] = []
    waiting: dict[str, list[int]] = defaultdict(list)
    since: dict[tuple[str, str], int] = {}

    def pop() -> None:
        one = cast("_Held | None", buffer.pop())
        assert (one is None) == (not any(waiting.values()))
        if one is None:
            return
        mine = one.delivery.channel
        assert waiting[mine].pop(0) == one.number
        taken.append(one.number)
        for other, left in waiting.items():
            if left and other != mine:
                since[other, mine] = since.get((other, mine), 0) + 1
                assert since[other, mine] <= 2
            since.pop((mine, other), None)

    for step in steps:
        if isinstance(step, int):
            for _ in range(step):
                pop()
        else:
            deliveries = _held(step, first=len(given_))
            buffer.extend(deliveries)
            for one in cast("list[_Held]", deliveries):
                given_.append(one.number)
                waiting[one.delivery.channel].append(one.number)
    while len(buffer):
        pop()
    assert sorted(taken) == given_
