"""Enqueues in opposite orders never deadlock; business transactions and consumers go on beside each other."""

from collections.abc import Callable, Sequence

import pytest
from sqlalchemy import Engine

from tests.fixtures.waits import Waits
from tests.sql.answers import Added
from tests.sql.client import Kernel, OpenKernel, on


def _enqueue(names: Sequence[str], keys: Sequence[str] | None) -> Callable[[Engine], list[Added]]:
    return on(lambda rival: rival.enqueue(*names, keys=keys))


@pytest.mark.parametrize("keys", [None, ["k", "l"]])
def test_first_use_in_opposite_orders_does_not_deadlock(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, keys: list[str] | None
) -> None:
    """A,B and B,A in one call each, both channels new, with and without keys: the second waits for the first and both
    are in.

    Without the order of names, one would hold A and wait for B while the other holds B and waits for A.
    """
    for round_ in range(5):
        names = (f"a{round_}", f"b{round_}")
        gate = open_kernel()
        # Both calls meet at the first name in order: whoever started with the other would hold it by then.
        gate.enqueue(names[0])
        forward = waits.start(_enqueue(names, keys)).blocked()
        backward = waits.start(_enqueue(names[::-1], keys and keys[::-1])).blocked()
        assert kernel.enqueue(names[1])[0].created
        gate.rollback()
        assert len(forward.result()) == len(backward.result()) == 2
        created = [row.created for row in forward.result() + backward.result()]
        assert created.count(True) == (2 if keys else 4)


def test_keys_in_opposite_orders_do_not_deadlock(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """The same keys of a channel in opposite orders: both calls meet at the least key and hold none above it."""
    kernel.enqueue("a")
    gate = open_kernel()
    gate.enqueue("a", keys=["k1"])
    rivals = [waits.start(_enqueue(["a"] * 3, keys)).blocked() for keys in (["k1", "k2", "k3"], ["k3", "k2", "k1"])]
    assert waits.unhindered(on(lambda free: free.enqueue("a", "a", keys=["k2", "k3"])))[0].created
    gate.rollback()
    assert sorted(row.created for rival in rivals for row in rival.result()) == [False] * 5 + [True]


def test_names_are_ordered_by_bytes(open_kernel: OpenKernel, waits: Waits) -> None:
    """The order of names is that of their bytes, whatever the database's language thinks: "B" before "a"."""
    gate = open_kernel()
    gate.enqueue("B")
    rival = waits.start(on(lambda rival: rival.enqueue("a", "B"))).blocked()
    assert waits.unhindered(on(lambda free: free.enqueue("a")))[0].created
    gate.rollback()
    assert len(rival.result()) == 2


@pytest.mark.parametrize("isolation", ["READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"])
def test_business_transactions_commit_while_their_channel_is_served(
    kernel: Kernel, open_kernel: OpenKernel, isolation: str
) -> None:
    """At every isolation level: enqueue, the channel is served, complete, the channel is served, commit."""
    kernel.configure("a", 100)
    kernel.enqueue(*["a"] * 6)
    (mine,) = kernel.dequeue().hands
    business = open_kernel(isolation=isolation)
    business.enqueue("a")
    assert len(kernel.dequeue(2).hands) == 2
    assert business.complete(mine) == {}
    assert len(kernel.dequeue(2).hands) == 2
    business.enqueue("a")
    business.commit()
    assert len(kernel.dequeue(10).hands) == 3
