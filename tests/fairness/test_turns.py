"""Equal channels are served in equal shares, and nobody gains by waiting or by having more."""

from collections import Counter

import pytest

from tests.sql.client import HOUR, Kernel, OpenKernel

CHANNELS = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")


def _spread(served: Counter[str], channels: tuple[str, ...] = CHANNELS) -> int:
    counts = [served[channel] for channel in channels]
    return max(counts) - min(counts)


@pytest.mark.parametrize("limit", [1, 7, 100])
@pytest.mark.parametrize("consumers", [1, 4])
def test_equal_channels_differ_by_one_turn_at_most(
    kernel: Kernel, open_kernel: OpenKernel, limit: int, consumers: int
) -> None:
    """After every single message, with one consumer or four in turn, equal channels' counts differ by one at most."""
    each = max(30, 3 * limit // 10 + limit)
    kernel.enqueue(*CHANNELS * each)
    kernels = [open_kernel(autocommit=True, name=f"consumer {number}") for number in range(consumers)]
    served: Counter[str] = Counter()
    for turn in range(each * len(CHANNELS) // limit):
        call = kernels[turn % consumers].dequeue(limit)
        assert len(call.hands) == limit
        for channel in call.channels:
            served[channel] += 1
            assert _spread(served) <= 1
    assert sum(served.values()) == each * len(CHANNELS) // limit * limit


@pytest.mark.parametrize("limit", [1, 7, 100])
@pytest.mark.parametrize("consumers", [1, 3])
def test_weights_hold_across_batches(kernel: Kernel, open_kernel: OpenKernel, limit: int, consumers: int) -> None:
    """After every batch, channels of weights 1, 2 and 5 have been served in these shares to within one turn each."""
    weights = {"one": 1, "two": 2, "five": 5}
    for channel, weight in weights.items():
        kernel.configure(channel, weight=weight)
        kernel.enqueue(*[channel] * 700)
    kernels = [open_kernel(autocommit=True, name=f"consumer {number}") for number in range(consumers)]
    served: Counter[str] = Counter()
    for turn in range(min(120, 1000 // limit)):
        served.update(kernels[turn % consumers].dequeue(limit).channels)
        turns = [served[channel] / weight for channel, weight in weights.items()]
        assert max(turns) - min(turns) <= 1


def test_weights_hold_within_a_batch_too(kernel: Kernel) -> None:
    """A batch with room for several turns comes as that many turns in a row, not channel after channel."""
    for channel, weight in {"one": 1, "two": 2}.items():
        kernel.configure(channel, weight=weight)
        kernel.enqueue(*[channel] * 20)
    assert kernel.dequeue(9).channels == ["one", "two", "two"] * 3


def test_a_single_message_overtakes_a_backlog(kernel: Kernel) -> None:
    """Bob's 10,000 and Alice's 1, enqueued in this order: hers is among the next (channels + batch) delivered."""
    kernel.enqueue(*["bob"] * 10_000)
    for limit in (1, 7, 100):
        kernel.dequeue(limit)
        kernel.enqueue("alice")
        following: list[str] = []
        while len(following) < 2 + limit:
            following += kernel.dequeue(limit).channels
        assert "alice" in following[: 2 + limit]


def test_returning_from_idleness_joins_at_the_end(kernel: Kernel) -> None:
    """A channel that was idle while others were served waits for each of them once when its ordinary message comes."""
    kernel.enqueue(*["a", "b", "c"] * 10, "idle")
    for _ in range(10):
        kernel.dequeue()
    kernel.enqueue("idle")
    served = [kernel.dequeue().channels[0] for _ in range(4)]
    assert served[-1] == "idle"
    assert sorted(served[:-1]) == ["a", "b", "c"]


@pytest.mark.parametrize("priority", [None, 1])
def test_going_idle_gains_nothing(kernel: Kernel, priority: int | None) -> None:
    """A channel that always has one message only, urgent or not, gets no more turns than one that stays backlogged."""
    kernel.enqueue(*["a", "b", "c"] * 60)
    served: Counter[str] = Counter()
    kernel.enqueue("sly", priorities=[priority])
    for _ in range(120):
        (channel,) = kernel.dequeue().channels
        served[channel] += 1
        if channel == "sly":
            kernel.enqueue("sly", priorities=[priority])
    assert _spread(served, ("a", "b", "c", "sly")) <= 1


def test_a_scheduled_message_gets_no_earlier_turn(kernel: Kernel) -> None:
    """A message whose time is long past when it is enqueued stands behind what was enqueued before, in its channel and
    among channels.
    """
    added = kernel.enqueue("a", "a", "b") + kernel.enqueue("a", "c", ats=[1, HOUR])
    a, again, b, late, c = (row.message_id for row in added)
    assert [hand.id for hand in kernel.drain(limit=1)] == [a, b, c, again, late]
