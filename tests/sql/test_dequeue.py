"""fq_dequeue: what is handed out, under which lease, and what it says about the time to come."""

import pytest

from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel

pytestmark = pytest.mark.installed


def test_a_delivery_carries_its_token(kernel: Kernel) -> None:
    """A delivery names its row, lease, hand-out and attempt, and the row says the same."""
    kernel.enqueue("a")
    (hand,) = kernel.dequeue().hands
    row = kernel.rows("select ctid::text as row, * from fq_message")[0]
    assert (row["row"], row["lease_id"], row["deliveries"], row["attempts"]) == (hand.row, hand.lease_id, 1, 1)
    assert kernel.value("select consumer from fq_lease where id = %(id)s", id=hand.lease_id) == "me"


def test_an_empty_queue_has_nothing_due(kernel: Kernel) -> None:
    """On an empty queue nothing is handed out, no lease is made and due_in is null: the caller may wait."""
    call = kernel.dequeue(10)
    assert (call.hands, call.lease_id, call.due_in) == ([], None, None)
    assert kernel.value("select count(*) from fq_lease") == 0


def test_a_live_lease_is_used_again(kernel: Kernel) -> None:
    """The caller's lease serves again while it is good for the time asked, and of the queue; else a new one is made."""
    kernel.enqueue("a", "a", "a")
    first = kernel.dequeue(lease=HOUR)
    assert kernel.dequeue(lease=SECOND, lease_id=first.lease_id).lease_id == first.lease_id
    other = kernel.dequeue(lease=2 * HOUR, lease_id=first.lease_id)
    assert other.lease_id not in {None, first.lease_id}
    # Reclaim looks for leases by queue.
    elsewhere = Kernel(kernel.connection, queue="other")
    elsewhere.enqueue("a")
    assert elsewhere.dequeue(lease=SECOND, lease_id=first.lease_id).lease_id not in {first.lease_id, other.lease_id}
    assert kernel.value("select count(*) from fq_lease") == 3


def test_due_in_is_the_end_of_the_next_lease(kernel: Kernel) -> None:
    """With everything handed out, the next thing to come is the end of a lease."""
    kernel.enqueue("a")
    kernel.dequeue(lease=HOUR)
    due_in = kernel.dequeue().due_in
    assert due_in is not None
    assert HOUR < due_in <= HOUR + HOUR // 8


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_consumers_never_get_the_same(kernel: Kernel, open_kernel: OpenKernel, end: str) -> None:
    """What an open call holds nobody else gets; after its rollback it is ready as before, slots included."""
    kernel.configure("a", 4)
    kernel.enqueue(*["a", "b"] * 4)
    holder = open_kernel()
    held = holder.dequeue(3)
    taken = kernel.dequeue(100)
    getattr(holder, end)()
    taken_ids = taken.ids + kernel.dequeue(100).ids + (held.ids if end == "commit" else [])
    assert len(taken_ids) == len(set(taken_ids)) == 8
    assert kernel.state("a")["current_concurrency"] == 4


def test_a_large_batch_is_one_call(kernel: Kernel) -> None:
    """Ten thousand messages of five thousand channels are heard and handed out in one call each, in sensible time."""
    kernel.rows("set statement_timeout = '60s'")
    kernel.enqueue(*[f"channel {number}" for number in range(5_000)] * 2)
    assert kernel.hear() == 5_000
    hands = kernel.dequeue(10_000).hands
    assert len({hand.id for hand in hands}) == 10_000
    assert kernel.complete(*hands) == {}
