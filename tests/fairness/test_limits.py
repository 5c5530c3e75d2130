"""Limits are exact, and those whom they do not concern are served as if the limited channels were not there."""

from collections import Counter
from datetime import timedelta

import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, Kernel, on


def _counts(kernel: Kernel, limit: int, calls: int) -> Counter[str]:
    served: Counter[str] = Counter()
    for _ in range(calls):
        served.update(kernel.dequeue(limit).channels)
    return served


@pytest.mark.parametrize(("limit", "weight"), [(1, 1), (7, 10), (100, 1)])
def test_max_concurrency_is_exact_and_the_others_stay_equal(kernel: Kernel, limit: int, weight: int) -> None:
    """A channel with room for two has two out, never three, however heavy; the others differ by one turn at most."""
    kernel.configure("tight", 2, weight=weight)
    kernel.enqueue(*["tight", "b", "c"] * 150)
    served = _counts(kernel, limit, 100 // limit + 1)
    assert served["tight"] == 2
    assert abs(served["b"] - served["c"]) <= 1


def test_consumers_together_keep_the_limit(kernel: Kernel, waits: Waits) -> None:
    """Four consumers that dequeue at the same time have together no more out than the limit allows."""
    kernel.configure("tight", 5)
    kernel.enqueue(*["tight"] * 100)
    rivals = [waits.start(on(lambda rival: [len(rival.dequeue(3).hands) for _ in range(5)])) for _ in range(4)]
    assert sum(sum(rival.result()) for rival in rivals) <= 5
    kernel.dequeue(100)
    assert kernel.value("select count(*) from fq_message where lease_id is not null") == 5


def test_the_rate_is_exact_and_the_others_stay_equal(kernel: Kernel, clock: Clock) -> None:
    """With one message an hour and a burst of three: three at once, then one each hour, three again after a rest."""
    kernel.configure("slow", interval=HOUR, burst=3)
    kernel.enqueue(*["slow", "b", "c"] * 200)
    served = _counts(kernel, 7, 20)
    assert served["slow"] == 3
    assert abs(served["b"] - served["c"]) <= 1
    for hours, expected in [(1, 1), (1, 1), (2, 2), (10, 3), (0, 0)]:
        clock.advance(timedelta(hours=hours))
        assert _counts(kernel, 1, 10)["slow"] == expected


def test_lifting_a_rate_frees_the_channel_at_once(kernel: Kernel) -> None:
    """A channel that waited for its rate is served at once when the rate is lifted."""
    kernel.configure("slow", interval=HOUR)
    kernel.enqueue("slow", "slow")
    assert len(kernel.dequeue(2).hands) == 1
    kernel.configure("slow")
    assert len(kernel.dequeue(2).hands) == 1


@pytest.mark.parametrize("limit", [1, 100])
def test_stale_channels_do_not_hide_a_ready_one(kernel: Kernel, limit: int) -> None:
    """A thousand channels whose messages were withdrawn come first in the ready order: one call finds the ready one
    behind them.
    """
    added = kernel.enqueue(*[f"stale {number}" for number in range(1000)], "ready")
    while kernel.hear():
        pass
    kernel.cancel(*[row.message_id for row in added[:-1]])
    assert kernel.dequeue(limit).channels == ["ready"]


def test_limited_channels_do_not_hide_a_ready_one(kernel: Kernel) -> None:
    """Three hundred channels at their limit, with backlogs, come first in the order: one call finds the ready one."""
    names = [f"full {number}" for number in range(300)]
    kernel.configure_queue(1)
    kernel.enqueue(*names * 2)
    assert sum(len(kernel.dequeue(100).hands) for _ in range(4)) == 300
    kernel.enqueue("ready")
    assert kernel.dequeue().channels == ["ready"]
