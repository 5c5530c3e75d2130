"""A channel that another transaction keeps locked while it is ready, in a queue that is fair by cost: what that does to
the others, and to the channel itself afterwards.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.sql.client import Kernel, OpenKernel

SERVED = 200
"""Messages that a channel was served beside the locked one."""


def _dequeue(kernel: Kernel, limit: int) -> list[str]:
    """Take up to so many messages, as one who finds that what it passes by has stood still for a second, and holds it
    back no longer; their channels.
    """
    kernel.rows(
        "update fq_queue_state q set still_since = 0, ready_floor = f.tag, ready_channel = f.channel_id"
        " from fq_first_ready('q'::text, '-9223372036854775808'::bigint, 0::bigint, false, false) f"
    )
    return kernel.dequeue(limit).channels


@pytest.fixture(autouse=True)
def _served(kernel: Kernel) -> None:
    """A queue that is fair by cost has served a message of each."""
    kernel.set_queue(fair_by="cost")
    kernel.enqueue("a", "b", "locked", *["a"] * 20, *["b"] * 20)
    assert sorted(_dequeue(kernel, 3)) == ["a", "b", "locked"]


@pytest.fixture
def lock(open_kernel: OpenKernel, kernel: Kernel) -> Callable[[], Kernel]:
    """Lock the state row of a ready channel, in another transaction."""

    def locked() -> Kernel:
        kernel.enqueue(*["locked"] * SERVED * 2)
        kernel.ready()
        business = open_kernel()
        business.rows(
            "select from fq_channel_state s join fq_channel c on c.id = s.channel_id and c.name = 'locked'"
            " for no key update of s"
        )
        return business

    return locked


def _shares(kernel: Kernel, *names: str, limit: int) -> Counter[str]:
    """What the channels are served next, forty messages together."""
    served = Counter(name for _ in range(40 // limit) for name in _dequeue(kernel, limit))
    assert set(served) <= set(names)
    return served


@pytest.mark.parametrize("limit", [1, 10])
def test_newcomers_do_not_start_where_the_locked_channel_stands(
    kernel: Kernel, lock: Callable[[], Kernel], limit: int
) -> None:
    """Each newcomer shares with who has been served meanwhile; the locked channel catches up."""
    business = lock()
    kernel.enqueue(*["a"] * SERVED, *["b"] * SERVED)
    for _ in range(2):
        assert _dequeue(kernel, 2) == ["a", "b"]
    assert _dequeue(kernel, 2 * SERVED - 4).count("a") == SERVED - 2
    kernel.enqueue(*["a"] * SERVED)
    _dequeue(kernel, limit)
    for newcomer in ("one", "two", "three"):
        kernel.enqueue(*[newcomer] * 40)
        served = _shares(kernel, "a", "b", "one", "two", "three", limit=limit)
        assert served[newcomer] - served["a"] <= 2, (newcomer, served)
    business.rollback()
    assert _dequeue(kernel, SERVED - 10) == ["locked"] * (SERVED - 10)


@pytest.mark.parametrize("limit", [1, 10])
def test_who_comes_back_finds_the_virtual_time_behind_nobody(
    kernel: Kernel, lock: Callable[[], Kernel], limit: int
) -> None:
    """While the locked channel alone is ready, the virtual time is the greatest tag; it is found once it is free."""
    business = lock()
    kernel.enqueue(*["a"] * SERVED)
    while _dequeue(kernel, 100):
        pass
    for _ in range(3):
        assert _dequeue(kernel, limit) == []
    kernel.enqueue(*["new"] * 100)
    assert _dequeue(kernel, limit) == ["new"] * limit
    kernel.enqueue(*["a"] * 100)
    served = _shares(kernel, "a", "new", limit=limit)
    assert abs(served["new"] - served["a"]) <= limit + 2, served
    while _dequeue(kernel, 100):
        pass
    business.rollback()
    assert _dequeue(kernel, 10) == ["locked"] * 10
