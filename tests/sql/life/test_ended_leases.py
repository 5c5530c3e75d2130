"""fq_end_leases: leases end when their consumer stops, but for those that hold or take something."""

from tests.sql.client import HOUR, Kernel, OpenKernel


def _end(kernel: Kernel, *lease_ids: int | None, queue: str | None = None) -> int:
    ended: int = kernel.value(
        "select fq_end_leases(%(queue)s, %(ids)s::bigint[])", queue=queue or kernel.queue, ids=list(lease_ids)
    )
    return ended


def test_what_is_held_stays(kernel: Kernel) -> None:
    """Only leases of the queue without messages end; each once."""
    kernel.enqueue("a", "b")
    done, kept = kernel.dequeue(lease=HOUR).hands, kernel.dequeue(lease=HOUR).hands
    kernel.complete(*done)
    leases = [done[0].lease_id, kept[0].lease_id]
    assert leases[0] != leases[1]
    assert _end(kernel, *leases, queue="elsewhere") == 0
    assert _end(kernel, *leases, None, leases[0]) == 1
    assert kernel.value("select id from fq_lease") == leases[1]
    assert _end(kernel, *leases) == _end(kernel) == 0
    assert kernel.value("select fq_end_leases(%(queue)s, null)") == 0
    kernel.complete(*kept)
    assert _end(kernel, *leases) == 1


def test_a_dequeue_under_way(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """A lease that an open dequeue uses is passed by, without a wait."""
    kernel.enqueue("a", "a")
    [first] = kernel.dequeue(lease=HOUR).hands
    kernel.complete(first)
    open_ = open_kernel()
    [second] = open_.dequeue(lease=HOUR // 2, lease_id=first.lease_id).hands
    assert second.lease_id == first.lease_id
    assert _end(kernel, first.lease_id) == 0
    open_.commit()
    assert _end(kernel, first.lease_id) == 0
    kernel.complete(second)
    assert _end(kernel, first.lease_id) == 1
