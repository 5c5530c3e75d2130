"""Consumers that really run at the same time keep the turns, too."""

from collections import Counter
from threading import Barrier

import pytest

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on

CONSUMERS = 4


@pytest.mark.parametrize(("limit", "channels", "rounds"), [(1, 10, 20), (7, 40, 12), (100, 450, 5)])
def test_calls_at_the_same_time_keep_the_turns(
    kernel: Kernel, waits: Waits, limit: int, channels: int, rounds: int
) -> None:
    """Four calls at once, again and again: after each round equal channels' counts differ by one at most.

    A channel that another call holds is passed by. There are more channels than the four calls together can hold, so
    none has to serve one twice for want of another, and each round is over before the next starts: hence no slack in
    the bound. It fails when the clock is read as the calls start instead of as each channel is locked.
    """
    names = [f"channel {number}" for number in range(channels)]
    kernel.enqueue(*names * (CONSUMERS * limit * rounds // channels + 2))
    kernel.ready()
    # The first delivery of a queue makes its gate; until it commits, others take nothing.
    kernel.rows("select fq_make_gate('q')")
    start = Barrier(CONSUMERS, timeout=60)

    def consume(consumer: Kernel) -> list[list[str]]:
        batches = []
        for _ in range(rounds):
            start.wait()
            batches.append(consumer.dequeue(limit).channels)
        return batches

    rivals = [waits.start(on(consume)) for _ in range(CONSUMERS)]
    served = Counter(dict.fromkeys(names, 0))
    for batches in zip(*(rival.result() for rival in rivals), strict=True):
        for batch in batches:
            assert len(batch) == limit
            served.update(batch)
        assert max(served.values()) - min(served.values()) <= 1


def test_what_consumers_take_together_is_everything_once(kernel: Kernel, waits: Waits) -> None:
    """Four consumers that dequeue and complete freely get every message exactly once between them."""
    added = kernel.enqueue(*[f"channel {number % 7}" for number in range(1400)])
    rivals = [waits.start(on(lambda consumer: [hand.id for hand in consumer.drain(limit=7)])) for _ in range(CONSUMERS)]
    taken = [message_id for rival in rivals for message_id in rival.result()]
    # A consumer may find everything in the others' hands and stop early; the rest is still there.
    while kernel.value("select count(*) from fq_message"):
        taken += [hand.id for hand in kernel.drain()]
    assert sorted(taken) == [row.message_id for row in added]


@pytest.mark.parametrize("fair_by", ["messages", "cost"])
@pytest.mark.parametrize("limit", [1, 7, 25])
def test_fewer_channels_than_the_calls_ask_for(kernel: Kernel, waits: Waits, fair_by: str, limit: int) -> None:
    """Four consumers on ten equal channels: after each 2,000 messages no channel is more than 3 % from its part."""
    kernel.set_queue(fair_by=fair_by)
    names = [f"channel {number}" for number in range(10)]
    kernel.enqueue(*names * 700)
    start = Barrier(CONSUMERS, timeout=60)
    served: list[str] = []

    def consume(consumer: Kernel) -> None:
        start.wait()
        call = consumer.dequeue(limit)
        while len(served) < 4_000:
            served.extend(call.channels)
            consumer.complete(*call.hands)
            call = consumer.dequeue(limit, lease_id=call.lease_id, hints=call.hints)

    for rival in [waits.start(on(consume)) for _ in range(CONSUMERS)]:
        rival.result()
    for count in range(2_000, 4_001, 2_000):
        parts = Counter(served[:count])
        assert count * 0.097 <= min(parts[name] for name in names)
        assert max(parts.values()) <= count * 0.103


def test_a_call_that_stalls_keeps_the_ready_order(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A call that started first but took the later channel puts it behind: the clock is read as channels are locked.

    With the clock of the call's start, each overtaking would give the later channel one more turn, without a bound.
    """
    kernel.enqueue(*["a", "b"] * 5)
    kernel.hear()
    quick = open_kernel()
    quick.rows("lock table fq_signal in access exclusive mode")
    stalled = waits.start(on(lambda rival: rival.dequeue().channels)).blocked()
    assert quick.dequeue().channels == ["a"]
    quick.commit()
    assert stalled.result() == ["b"]
    assert [kernel.dequeue().channels[0] for _ in range(4)] == ["a", "b", "a", "b"]
