"""fq_heartbeat: a live lease runs on, a dead one stays dead."""

from dataclasses import replace
from datetime import timedelta

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, Kernel, OpenKernel, on


def test_a_lease_without_the_message_is_not_extended(kernel: Kernel) -> None:
    """Where one of the given hand-outs is not held under the lease any more, the answer is null."""
    kernel.enqueue("a", "a")
    call = kernel.dequeue(2)
    one, two = call.hands
    assert kernel.extend(call.lease_id, HOUR, replace(one, deliveries=2)) is None
    kernel.complete(one)
    assert kernel.extend(call.lease_id, HOUR, one, two) is None
    assert kernel.extend(call.lease_id, HOUR, two) is not None


def test_extending_waits_for_a_reclaim_and_loses(
    kernel: Kernel, open_kernel: OpenKernel, clock: Clock, waits: Waits
) -> None:
    """While another consumer reclaims the lease, extending waits; when it is gone, the answer is null."""
    kernel.enqueue("a")
    call = kernel.dequeue(lease=HOUR)
    clock.advance(timedelta(hours=2))
    reclaiming = open_kernel()
    assert len(reclaiming.dequeue().hands) == 1
    clock.advance(timedelta(hours=-2))
    rival = waits.start(on(lambda holder: holder.extend(call.lease_id, HOUR))).blocked()
    reclaiming.commit()
    assert rival.result() is None


def test_a_lease_of_another_queue_is_lost(kernel: Kernel) -> None:
    """No lease is extended under the name of another queue."""
    kernel.enqueue("a")
    lease_id = kernel.dequeue().lease_id
    before = kernel.rows("select * from fq_lease")
    given = {"id": lease_id, "lease": HOUR}
    heartbeat = "select expires_at from fq_heartbeat(array[%(id)s::bigint], %(lease)s, %(queue)s)"
    assert kernel.value(heartbeat, queue="other", **given) is None
    assert kernel.rows("select * from fq_lease") == before
    assert kernel.value(heartbeat, queue="q", **given) is not None
    assert kernel.rows("select * from fq_lease") != before
