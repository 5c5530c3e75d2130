"""A step of the server's clock moves what is due, and no order."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue
from sqlalchemy_fairqueue.values.messages import FairBy
from tests.fixtures.clock import Clock

HOUR = timedelta(hours=1)
BUSY = ("a", "b", "c")


@pytest.mark.parametrize("limit", [1, 7])
@pytest.mark.parametrize("fair_by", ["messages", "cost"])
@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward and back", "back and forward"])
def test_a_clock_that_steps_both_ways(
    engine: Engine, clock: Clock, step: timedelta, fair_by: FairBy, limit: int
) -> None:
    """What is due whatever the clock says comes in the order in which it would have come, what is enqueued meanwhile
    is due at once, and what was scheduled comes when the clock says so.
    """
    still = _served(engine, clock, fair_by, timedelta(), limit)
    stepped = _served(engine, clock, fair_by, step, limit)
    busy, as_usual = ([one for stage in run for one in stage if one[0] in BUSY] for run in (stepped, still))
    # A batch that begins elsewhere has equals in another order.
    assert max(abs(as_usual.index(one) - place) for place, one in enumerate(busy[:50])) < limit
    others = [{name for name, _ in stage if name not in BUSY} for stage in stepped]
    if step == HOUR:
        assert others == [set(), {"past", "meanwhile", "future"}, set()]
    else:
        assert others == [set(), {"meanwhile"}, {"past"}]


def _served(
    engine: Engine, clock: Clock, fair_by: FairBy, step: timedelta, limit: int
) -> list[list[tuple[str, object]]]:
    """The messages that are served before a step of the clock, after it, and after the step back."""
    queue = Queue(f"{fair_by} {step}")
    queue.configure(engine, fair_by=fair_by)
    queue.configure_channel(engine, "b", ChannelPolicy(weight=2))
    busy = [Enqueue(channel=name, payload=number, cost=1 + number * 7 % 5) for number in range(60) for name in BUSY]
    delays = {"past": 3.5 * HOUR, "future": 4.5 * HOUR}
    later = [Enqueue(channel=name, payload=0, delay=delay) for name, delay in delays.items()]
    queue.enqueue_many(engine, busy + later)
    stages: list[list[tuple[str, object]]] = []
    for move in (3 * HOUR, HOUR + step, -step):
        clock.advance(move)
        if len(stages) == 1:
            queue.enqueue_many(engine, [Enqueue(channel="meanwhile", payload=0)])
        served: list[tuple[str, object]] = []
        while len(served) < 21:
            deliveries = queue.dequeue(engine, limit=limit, lease=10 * HOUR)
            assert len(deliveries) == limit
            queue.complete(engine, deliveries)
            served += [(delivery.channel, delivery.payload) for delivery in deliveries]
        stages.append(served)
    return stages
