"""Consumers that really run at the same time keep the turns, too."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import Barrier, Condition
from typing import Any

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
    the bound.
    """
    names = [f"channel {number}" for number in range(channels)]
    kernel.enqueue(*names * (CONSUMERS * limit * rounds // channels + 2))
    kernel.ready()
    # The first delivery of a queue makes its gate; until it commits, others take nothing.
    kernel.rows("select fq_open_queue('q')")
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


CHANNELS = tuple(f"channel {number}" for number in range(10))
LIMITS, RIVALS, HANDLERS, WEIGHTS = (1, 7, 25, 100), (2, 4, 8), (0, 5, 20), ((1,), (1, 2, 3))
COSTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "messages": ((1,),),
    "equal costs": ((3,),),
    "mixed costs": ((1,), (5,), (1, 2, 4, 5)),
}
"""What a queue is fair by; the costs of messages, repeated, of each kind of channel."""
_ALWAYS = {(0, 0), (1, 1), (2, 0), (2, 2), (3, 2)}
SERVED, EACH = 8_000, 2_000


class SimulatedTime:
    """Milliseconds that pass as soon as all consumers wait: what is over at the same time goes on at the same time."""

    def __init__(self, consumers: int) -> None:
        self._changed = Condition()
        self._consumers = consumers
        self._waiting: list[int] = []
        self._now = 0

    def wait(self, milliseconds: int) -> None:
        """Wait until so much time has passed."""
        with self._changed:
            until = self._now + milliseconds
            self._waiting.append(until)
            self._pass()
            assert self._changed.wait_for(lambda: self._now >= until, timeout=60)

    def leave(self) -> None:
        """Let time pass without this consumer from now on."""
        with self._changed:
            self._consumers -= 1
            self._pass()

    def _pass(self) -> None:
        if self._waiting and len(self._waiting) == self._consumers:
            self._now = min(self._waiting)
            self._waiting = [until for until in self._waiting if until > self._now]
            self._changed.notify_all()


def _variants() -> Iterator[Any]:
    """All variants; five, which have each value of each parameter among them, run always."""
    numbers = itertools.product(*(range(len(one)) for one in (LIMITS, RIVALS, COSTS, HANDLERS, WEIGHTS)))
    for limit, rivals, costs, handler, weights in numbers:
        always = (limit, rivals) in _ALWAYS
        always &= (costs, handler, weights) == ((limit + rivals) % 3, (2 * limit + rivals) % 3, (limit + rivals) % 2)
        values = LIMITS[limit], RIVALS[rivals], list(COSTS)[costs], HANDLERS[handler], WEIGHTS[weights]
        yield pytest.param(*values, marks=() if always else pytest.mark.whole, id="-".join(map(str, values)))


def _farthest(served: Sequence[tuple[str, int]], weights: Mapping[str, int]) -> float:
    """How far the channel that is farthest from its part is from it, as a share of that."""
    sums = Counter[str]()
    for name, cost in served:
        sums[name] += cost
    unit = sums.total() / sum(weights.values())
    return max(abs(sums[name] / weight / unit - 1) for name, weight in weights.items())


@pytest.mark.parametrize(("limit", "rivals", "fair", "handler", "weights"), [*_variants()])
def test_consumers_that_share_few_channels(  # noqa: PLR0917 - parameters
    kernel: Kernel, waits: Waits, limit: int, rivals: int, fair: str, handler: int, weights: tuple[int, ...]
) -> None:
    """Ten channels, however many consumers call at the same time: after each 2,000 messages no channel is more than
    3 % from its part, 5 % if batches are of 100, and after 8,000 not more than 1 %; by calls for one, after 2,000.
    """
    # Each of these calls costs as much as one for many, and is exact much sooner.
    served_at_last = EACH if limit == 1 and fair == "messages" else SERVED
    weight_of = dict(zip(CHANNELS, itertools.cycle(weights), strict=False))
    cost_of = _fill(kernel, fair, weight_of)
    taken: list[tuple[int, int, str, int]] = []
    start, time = Barrier(rivals, timeout=60), SimulatedTime(rivals)

    def consume(consumer: Kernel) -> None:
        start.wait()
        call = consumer.dequeue(limit)
        while len(taken) < served_at_last:
            taken.extend(
                (call.taken_at, place, hand.channel, cost_of[hand.id]) for place, hand in enumerate(call.hands)
            )
            if handler:
                time.wait(handler * len(call.hands) or 1)
            consumer.complete(*call.hands)
            call = consumer.dequeue(limit, lease_id=call.lease_id)
        time.leave()

    for rival in [waits.start(on(consume)) for _ in range(rivals)]:
        rival.result()
    # A thread may be slow to tell what it has taken.
    served = [(name, cost) for *_, name, cost in sorted(taken)]
    far = {count: _farthest(served[:count], weight_of) for count in range(EACH, served_at_last + 1, EACH)}
    assert max(far.values()) <= (0.05 if limit == 100 else 0.03), far
    assert far[served_at_last] <= 0.01, far


def _fill(kernel: Kernel, fair: str, weight_of: Mapping[str, int]) -> dict[int, int]:
    """Enqueue a fourth more than each channel's part of what is served, and return what each message costs."""
    kinds = COSTS[fair]
    # Three channels of each kind, so that each kind has each weight.
    cycles = {name: kinds[number // 3 % len(kinds)] for number, name in enumerate(CHANNELS)}
    parts = {name: weight * len(cycles[name]) / sum(cycles[name]) for name, weight in weight_of.items()}
    kernel.set_queue(fair_by="cost" if "costs" in fair else "messages")
    for name, part in parts.items():
        count = int(1.25 * SERVED * part / sum(parts.values()))
        kernel.configure(name, weight=weight_of[name])
        kernel.enqueue(*[name] * count, costs=list(itertools.islice(itertools.cycle(cycles[name]), count)))
    return {row["id"]: row["cost"] or 1 for row in kernel.rows("select id, cost from fq_message")}


def test_a_call_that_stalls_keeps_the_ready_order(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A call that began first and takes last: the order is that of start tags, whenever the calls began."""
    kernel.enqueue(*["a", "b"] * 5)
    kernel.hear()
    quick = open_kernel()
    quick.rows("lock table fq_signal in access exclusive mode")
    stalled = waits.start(on(lambda rival: rival.dequeue().channels)).blocked()
    assert quick.dequeue().channels == ["a"]
    quick.commit()
    assert stalled.result() == ["b"]
    assert [kernel.dequeue().channels[0] for _ in range(4)] == ["a", "b", "a", "b"]
