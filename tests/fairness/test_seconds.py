"""A queue that is fair by seconds shares the time of its consumers while handlers run, and in the end exactly."""

import heapq
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.testing import make_delivery
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, TrackedLease
from tests.fixtures.clock import Clock
from tests.sql.answers import Hand
from tests.sql.client import Kernel, OpenKernel

_TIMED = replace(make_delivery(Queue("q"), None), is_timed=True)


@pytest.fixture(autouse=True)
def _fair_by_seconds(kernel: Kernel) -> None:
    kernel.set_queue(fair_by="seconds")


@dataclass(slots=True)
class _Consumers:
    """Consumers of one message each, with the charges of a worker, by a clock that is moved from event to event."""

    kernel: Kernel
    clock: Clock
    durations: dict[str, float]
    slots: int
    now: float = 0.0
    served: list[tuple[str, float, float]] = field(default_factory=list)
    _running: dict[int, tuple[Hand, HeldDelivery]] = field(default_factory=dict)
    _ends: list[tuple[float, int]] = field(default_factory=list)

    def serve(self, seconds: int) -> None:
        """Serve the queue for so long, and charge for what runs each second."""
        charge_at = 1.0
        while True:
            self._take()
            ends_at = self._ends[0][0]
            at = min(ends_at, charge_at, seconds)
            self.now = at
            if at == seconds:
                break
            if at == charge_at:
                self.clock.advance(timedelta(seconds=1))
                self._charge()
                charge_at += 1.0
            else:
                self._complete(heapq.heappop(self._ends)[1])

    def shares(self, begin: float, end: float) -> dict[str, float]:
        """The seconds of slots that each channel had between two times."""
        running = [(hand.channel, self.now - (held.took or 0), self.now) for hand, held in self._running.values()]
        shares = dict.fromkeys(self.durations, 0.0)
        for channel, since, until in self.served + running:
            shares[channel] += max(0.0, min(end, until) - max(begin, since))
        return shares

    def _take(self) -> None:
        while len(self._running) < self.slots:
            [hand] = self.kernel.dequeue().hands
            held = _held(self)
            held.begin()
            self._running[hand.id] = hand, held
            heapq.heappush(self._ends, (self.now + self.durations[hand.channel], hand.id))

    def _charge(self) -> None:
        running = [(hand, held.charge_on()) for hand, held in self._running.values()]
        self.kernel.charge_running([(hand, *charge) for hand, charge in running if charge is not None])

    def _complete(self, message_id: int) -> None:
        hand, held = self._running.pop(message_id)
        self.served.append((hand.channel, self.now - (held.took or 0), self.now))
        _settle(self.kernel, hand, held)


def _held(clock: Any) -> HeldDelivery:
    return HeldDelivery(_TIMED, TrackedLease(1, 1e9, lambda: clock.now), cast("Any", None), 0.0)


def _settle(kernel: Kernel, hand: Hand, held: HeldDelivery) -> None:
    cost = held.measured_cost
    assert cost is not None
    kernel.correct(hand, cost, charged=held.stop_charging())
    assert kernel.complete(hand) == {}


@pytest.mark.parametrize(
    ("long", "short", "takes"), [(1, 1, 0.1), pytest.param(3, 1, 0.1, marks=pytest.mark.whole), (1, 3, 0.2)]
)
def test_slots_are_shared_while_handlers_run(kernel: Kernel, clock: Clock, long: int, short: int, takes: float) -> None:
    """Of 8 slots, a tenant whose handlers take 6 s and one whose handlers are short have their shares by weight, and
    each has a slot in every second, if that is no less than half of them.
    """
    kernel.configure("long", weight=long)
    kernel.configure("short", weight=short)
    kernel.enqueue(*["long"] * 60, *["short"] * 1_400)
    consumers = _Consumers(kernel, clock, {"long": 6.0, "short": takes}, slots=8)
    consumers.serve(30)
    shares = consumers.shares(1, 30)
    assert shares["long"] / long == pytest.approx(shares["short"] / short, rel=0.1)
    for second in range(1, 30 if long >= short else 1):
        assert min(consumers.shares(second, second + 1).values()) > 0, second


def test_one_slot_alternates_by_time(kernel: Kernel, clock: Clock) -> None:
    """A message that nobody can interrupt has the slot for as long as it takes; then the other has as much."""
    kernel.enqueue(*["long"] * 10, *["short"] * 100)
    consumers = _Consumers(kernel, clock, {"long": 6.0, "short": 0.5}, slots=1)
    consumers.serve(31)
    turns = [channel for channel, _, _ in consumers.served]
    assert turns[:14] == ["long", *["short"] * 12, "long"]
    assert turns[14:27] == [*["short"] * 12, "long"]


def test_the_charges_add_up_to_the_time(kernel: Kernel) -> None:
    """What the dequeue, the charges of a running handler and the settlement charge is what it took, to the millisecond;
    a message that names a cost is charged that first.
    """
    kernel.enqueue(*["a"] * 2, costs=[None, 5_000])
    for took, at_first in ((9_250, 2_000), (4_321, 5_000)):
        (hand,) = kernel.dequeue().hands
        clock = SimpleNamespace(now=100.0)
        held = _held(clock)
        held.begin()
        assert _charged(kernel, hand) == at_first
        for second in range(1, 1 + took // 1_000):
            clock.now = 100.0 + second
            kernel.charge_running([(hand, *charge) for charge in [held.charge_on()] if charge])
            assert _charged(kernel, hand) == max(at_first, 1_000 * second + 2_000)
        clock.now = 100.0 + took / 1_000
        _settle(kernel, hand, held)
        assert at_first + _told(kernel) == took
        kernel.hear()


def test_the_mean_of_a_channel_is_charged(kernel: Kernel) -> None:
    """What its messages took lately, two seconds at most; what nobody worked on does not count."""
    kernel.enqueue(*["a"] * 12)
    charged = []
    for took in (80, 80, 160, 160, 0, 20_000, 80, 80):
        (hand,) = kernel.dequeue().hands
        charged.append(_charged(kernel, hand))
        kernel.correct(hand, took)
        kernel.complete(hand)
    assert charged == [2_000, 80, 80, 90, 98, 98, 2_000, 2_000]


def test_a_batch_is_charged_by_the_means(kernel: Kernel) -> None:
    """One call for many messages gives equal times, and not equal counts."""
    for channel, took in (("a", 300), ("b", 100)):
        kernel.enqueue(channel)
        (hand,) = kernel.dequeue().hands
        kernel.correct(hand, took)
        kernel.complete(hand)
    kernel.enqueue(*"ab" * 100)
    kernel.hear()
    served = Counter(kernel.dequeue(80).channels)
    assert 3 * served["a"] == pytest.approx(served["b"], abs=4)


def test_what_is_not_held_is_not_charged(kernel: Kernel) -> None:
    """Neither a delivery that was lost, nor one of a queue that is not fair by seconds."""
    kernel.enqueue("a")
    (hand,) = kernel.dequeue().hands
    kernel.release(hand)
    (again,) = kernel.dequeue().hands
    kernel.hear()
    kernel.charge_running([(hand, 9_000, 0)])
    assert _told(kernel) == 0
    kernel.set_queue(fair_by="cost")
    kernel.charge_running([(again, 9_000, 0)])
    assert _told(kernel) == 0
    kernel.set_queue(fair_by="seconds")
    kernel.charge_running([(again, 9_000, 0)])
    assert _told(kernel) == 7_000
    with pytest.raises(psycopg.errors.Error, match="has cost -1") as refused:
        kernel.charge_running([(again, -1, 0)])
    assert refused.value.sqlstate == "QF001"


def test_a_charge_changes_no_message(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """A handler whose transaction has a snapshot of its own completes its message, charged or not."""
    kernel.enqueue("a")
    (hand,) = kernel.dequeue().hands
    handler = open_kernel(isolation="SERIALIZABLE")
    assert handler.value("select count(*) from fq_message") == 1
    kernel.charge_running([(hand, 9_000, 0)])
    assert handler.complete(hand) == {}
    handler.commit()


def _charged(kernel: Kernel, hand: Hand) -> int:
    """What the channel of a delivery was charged for it, so far."""
    charged: int = kernel.value("select charged from fq_message where id = %(id)s", id=hand.id) + _told(kernel)
    return charged


def _told(kernel: Kernel) -> int:
    """What channels are charged when the signals are heard."""
    return int(kernel.value("select coalesce(sum(cost), 0) from fq_signal"))
