"""Locks that an uncommitted merge holds: those of its own job and of the keys it has added, and nothing else."""

import pytest

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on
from tests.sql.load.loads import Merged, merge, messages, staged


def test_nobody_waits_and_nothing_is_seen_early(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """Business transactions and workers go on at the same channels; the load is there with its commit, whole."""
    kernel.enqueue("a", "b")
    stage = staged(kernel, *"aaabbb")
    merging = open_kernel()
    merge(merging, stage, 6)
    waits.unhindered(on(lambda rival: rival.enqueue("a", "b", keys=["1", "2"])))
    waits.unhindered(on(lambda rival: rival.configure("a", 100)))
    taken = waits.unhindered(on(lambda rival: rival.dequeue(10).hands))
    assert [hand.channel for hand in taken] == ["a", "b", "a", "b"]
    assert waits.unhindered(on(lambda rival: rival.complete(*taken))) == {}
    assert messages(kernel) == []
    merging.commit()
    assert sorted(kernel.dequeue(10).channels) == list("aaabbb")


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_same_job_waits(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, end: str) -> None:
    """Of two drivers with one job the second learns that the first has done it; if that rolls back, it does it."""
    first, second = staged(kernel, "a"), staged(kernel, "a")
    merging = open_kernel()
    merge(merging, first, 1)
    rival = waits.start(on(lambda kernel: merge(kernel, second, 1))).blocked()
    getattr(merging, end)()
    assert rival.result() == Merged(end == "rollback", 1, 1, 0, 0, 0, 0)
    assert len(messages(kernel)) == 1


def test_keys_are_taken_in_order(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """Two loads that bring the same keys in opposite order never wait for each other in a circle."""
    stage = staged(kernel, *"zya", key=["1", "1", "1"])
    other = open_kernel()
    other.enqueue("a", keys=["1"])
    rival = waits.start(on(lambda kernel: merge(kernel, stage, 3))).blocked()
    # It waits for "a" and has not taken "y" or "z" yet.
    other.rows("set local lock_timeout = '1s'")
    other.enqueue("y", "z", keys=["1", "1"])
    other.commit()
    assert rival.result() == Merged(True, 3, 0, 0, 3, 0, 0)
