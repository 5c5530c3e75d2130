"""State rows of channels: each has one, made with the channel, or anew after it was lost."""

import pytest

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on

pytestmark = pytest.mark.installed

_LEVELS = ["READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"]


@pytest.mark.parametrize("keys", [None, ["k"]], ids=["plain", "key"])
def test_a_channel_without_a_state_row(kernel: Kernel, keys: list[str] | None) -> None:
    """The next enqueue makes it anew: all messages of the channel are delivered."""
    kernel.enqueue("a", "a")
    kernel.rows("delete from fq_channel_state")
    kernel.rows("set statement_timeout = '10s'")
    assert kernel.enqueue("a", keys=keys)[0].created
    assert len(kernel.drain()) == 3
    assert kernel.value("select backlog from fq_channel_state") == 0


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


def test_two_enqueues_to_a_channel_without_a_state_row(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """The second waits for the first, which makes the row, and makes none."""
    kernel.enqueue("a")
    kernel.rows("delete from fq_channel_state")
    first = open_kernel()
    first.enqueue("a")
    second = waits.start(on(lambda free: free.enqueue("a"))).blocked()
    first.commit()
    assert second.result()[0].created
    assert kernel.value("select count(*) from fq_channel_state") == 1
    assert len(kernel.drain()) == 3


def test_a_repair_leaves_a_channel_that_somebody_has_locked(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Its signals stay: without the state row nothing of what they tell could be counted."""
    kernel.enqueue("a")
    other = open_kernel()
    other.rows("select from fq_channel_state for update")
    assert kernel.value("select fq_repair_channel('q', (select id from fq_channel))") is False
    assert kernel.value("select message_id is not null from fq_signal")
    other.rollback()
    assert len(kernel.drain()) == 1
