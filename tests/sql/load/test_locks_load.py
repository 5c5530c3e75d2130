"""Locks that an uncommitted merge holds: those of its own job and of the keys it has added, and nothing else."""

from typing import Any

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on
from tests.sql.load.loads import Merged, copy, make_channels, make_stage, merge, messages


def staged(kernel: Kernel, *channels: str, **columns: Any) -> str:
    """A stage with its channels made."""
    stage = make_stage(kernel)
    copy(kernel, stage, *channels, **columns)
    make_channels(kernel, stage)
    return stage


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


def test_the_same_job_waits_and_adds_nothing(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """Of two drivers with one job the second learns that the first has done it."""
    first, second = staged(kernel, "a"), staged(kernel, "a")
    merging = open_kernel()
    merge(merging, first, 1)
    rival = waits.start(on(lambda kernel: merge(kernel, second, 1))).blocked()
    merging.commit()
    assert rival.result() == Merged(False, 1, 1, 0, 0, 0, 0)
    assert len(messages(kernel)) == 1


def test_the_same_job_goes_on_where_the_first_failed(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """If the first rolls back, the second does it."""
    first, second = staged(kernel, "a"), staged(kernel, "a")
    merging = open_kernel()
    merge(merging, first, 1)
    rival = waits.start(on(lambda kernel: merge(kernel, second, 1))).blocked()
    merging.rollback()
    assert rival.result().merged
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
