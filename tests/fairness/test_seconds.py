"""A queue that is fair by seconds shares the time of its consumers while handlers run, and in the end exactly."""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sqlalchemy_fairqueue import Delivery
from sqlalchemy_fairqueue.values.messages import Lease, Once
from sqlalchemy_fairqueue.worker.leases import HeldDelivery, TrackedLease
from tests.fixtures.clock import Clock
from tests.sql.client import Hand, Kernel

_LEASE = Lease(1, "me", datetime.now(UTC))
_CHARGED = "select coalesce(sum((tag + 9000000000000000000) / 2520), 0)::bigint from fq_channel_state"


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
            self.clock.advance(timedelta(seconds=at - self.now))
            self.now = at
            if at == seconds:
                break
            if at == charge_at:
                self._charge()
                charge_at += 1.0
            else:
                self._complete(heapq.heappop(self._ends)[1])

    def shares(self, second: int | None = None) -> Counter[str]:
        """The seconds of slots that each channel had, after the first second or in one."""
        begin, end = (1.0, self.now) if second is None else (second, second + 1)
        running = [(hand.channel, self.now - (held.took or 0), self.now) for hand, held in self._running.values()]
        shares: Counter[str] = Counter()
        for channel, since, until in self.served + running:
            shares[channel] += cast("int", max(0.0, min(end, until) - max(begin, since)))
        return shares

    def _take(self) -> None:
        while len(self._running) < self.slots:
            [hand] = self.kernel.dequeue().hands
            held = _held(self, hand)
            held.begin()
            self._running[hand.id] = hand, held
            heapq.heappush(self._ends, (self.now + self.durations[hand.channel], hand.id))

    def _charge(self) -> None:
        running = [(hand, held.charge_on()) for hand, held in self._running.values()]
        charges = [(hand, charge) for hand, charge in running if charge is not None]
        _charge(self.kernel, charges)

    def _complete(self, message_id: int) -> None:
        hand, held = self._running.pop(message_id)
        self.served.append((hand.channel, self.now - (held.took or 0), self.now))
        _settle(self.kernel, hand, held)


def _held(clock: Any, hand: Hand) -> HeldDelivery:
    delivery = Delivery(
        message_id=hand.id,
        queue="q",
        channel=hand.channel,
        kind=hand.kind,
        content=hand.content,
        headers=None,
        attempt=hand.attempt,
        max_attempts=20,
        enqueued_at=_LEASE.expires_at,
        lease=_LEASE,
        deliveries=hand.deliveries,
        row_id=hand.row,
        decoded=Once(lambda: None),
        is_timed=True,
    )
    return HeldDelivery(delivery, TrackedLease(1, 1e9, lambda: clock.now), cast("Any", None), 0.0)


def _charge(kernel: Kernel, charges: list[tuple[Hand, tuple[int, int]]]) -> None:
    kernel.rows(
        "select fq_charge_running('q', %(ids)s::bigint[], %(leases)s::bigint[], %(deliveries)s::integer[],"
        " %(costs)s::bigint[], %(charged)s::bigint[])",
        ids=[hand.id for hand, _ in charges],
        leases=[hand.lease_id for hand, _ in charges],
        deliveries=[hand.deliveries for hand, _ in charges],
        costs=[cost for _, (cost, _) in charges],
        charged=[charged for _, (_, charged) in charges],
    )


def _settle(kernel: Kernel, hand: Hand, held: HeldDelivery) -> None:
    kernel.rows(
        "select fq_correct_costs('q', array[%(id)s::bigint], array[%(lease_id)s::bigint],"
        " array[%(deliveries)s::integer], array[%(cost)s::bigint], array[%(charged)s::bigint])",
        id=hand.id,
        lease_id=hand.lease_id,
        deliveries=hand.deliveries,
        cost=held.measured_cost,
        charged=held.stop_charging(),
    )
    assert kernel.complete(hand) == {}


def _backlog(kernel: Kernel, weights: dict[str, int], messages: dict[str, int]) -> None:
    for channel, weight in weights.items():
        kernel.configure(channel, weight=weight)
    kernel.enqueue(*[channel for channel, count in messages.items() for _ in range(count)])


@pytest.mark.parametrize("weights", [{"long": 1, "short": 1}, {"long": 3, "short": 1}, {"long": 1, "short": 3}])
def test_slots_are_shared_while_handlers_run(kernel: Kernel, clock: Clock, weights: dict[str, int]) -> None:
    """Of 8 slots, a tenant whose handlers take 6 s and one of 0.1 s have their shares, and each has a slot in every
    second.
    """
    _backlog(kernel, weights, {"long": 60, "short": 2_400})
    consumers = _Consumers(kernel, clock, {"long": 6.0, "short": 0.1}, slots=8)
    consumers.serve(30)
    shares = consumers.shares()
    by_weight = {channel: shares[channel] / weight for channel, weight in weights.items()}
    assert max(by_weight.values()) <= 1.1 * min(by_weight.values()), shares
    for second in range(1, 30):
        assert all(consumers.shares(second)[channel] > 0 for channel in weights), second
