"""State rows of channels: each has one, made with the channel."""

import pytest

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on, refused

pytestmark = pytest.mark.installed

_LEVELS = ["READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"]


def test_a_channel_without_a_state_row(kernel: Kernel) -> None:
    """An enqueue to it says what is missing."""
    kernel.enqueue("a")
    kernel.rows("delete from fq_channel_state")
    with refused(match="channel 'a' of queue 'q' has no state row"):
        kernel.enqueue("a")


@pytest.mark.parametrize("isolation", _LEVELS)
def test_nobody_waits_for_a_new_channel_who_did_not_before(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, isolation: str
) -> None:
    """While a transaction that made a channel is open, others enqueue to, dequeue from and configure other channels."""
    kernel.enqueue("a")
    business = open_kernel(isolation=isolation)
    assert business.enqueue("new")[0].created
    assert waits.unhindered(on(lambda free: free.enqueue("a", "b")))[0].created
    assert len(waits.unhindered(on(lambda free: free.dequeue(10))).hands) == 3
    waits.unhindered(on(lambda free: free.configure("a", max_concurrency=2)))
    business.commit()
    assert len(kernel.dequeue().hands) == 1
