"""fq_cancel, fq_heartbeat, fq_lock_messages: a message that is withdrawn while a consumer has it."""

from datetime import timedelta

import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel, on
from tests.sql.kernel.verbs import unbalanced
from tests.sql.life.verbs import Beat, heartbeat, lock_messages


def test_the_worker_is_told_by_its_heartbeat(kernel: Kernel) -> None:
    """Each heartbeat names the cancelled messages of the lease, in the order of their ids, until they are settled."""
    kernel.enqueue(*["a"] * 3, priorities=[None, None, 1])
    [three] = kernel.dequeue().hands
    one, two = kernel.dequeue(3, lease_id=three.lease_id).hands
    lease = one.lease_id
    assert heartbeat(kernel, lease)[0].cancelled == []
    kernel.cancel(three.id, one.id)
    assert [heartbeat(kernel, lease)[0].cancelled for _ in range(2)] == [[one.id, three.id]] * 2
    kernel.complete(one)
    kernel.release(three)
    assert heartbeat(kernel, lease)[0].cancelled == []
    assert kernel.complete(two) == {}


def test_a_heartbeat_extends_what_is_alive(kernel: Kernel, clock: Clock) -> None:
    """Each given lease has one row, in order: extended, never shortened, or lost; a lost one does not come back."""
    kernel.enqueue("a", "a", "a")
    long, short, gone = (kernel.dequeue(lease=lease).lease_id for lease in (24 * HOUR, HOUR // 4, HOUR // 4))
    before = kernel.value("select expires_at from fq_lease where id = %(id)s", id=long)
    kernel.rows("update fq_lease set expires_at = fq_now() where id = %(id)s", id=gone)
    beats = {beat.lease_id: beat for beat in heartbeat(kernel, short, gone, long, None, 7, short, lease=HOUR)}
    assert list(beats) == sorted([long or 0, short or 0, gone or 0, 7])
    assert beats[long or 0].expires_at == before
    assert (beats[short or 0].expires_at or 0) > kernel.value("select fq_now()") + HOUR - 60 * SECOND
    assert (beats[gone or 0].expires_at, beats[7].expires_at) == (None, None)
    clock.advance(timedelta(minutes=30))
    assert len(kernel.dequeue(10).hands) == 1
    assert heartbeat(kernel, gone)[0].expires_at is None


def test_a_heartbeat_during_a_reclaim_is_lost(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, clock: Clock
) -> None:
    """A heartbeat of a lease that is being reclaimed, messages of it still locked, says at once that the lease is lost,
    and says so for good.
    """
    kernel.enqueue("a", "a")
    (hand, _) = kernel.dequeue(2, lease=SECOND).hands
    holder = open_kernel()
    holder.rows("select from fq_message where id = %(id)s for update", id=hand.id)
    clock.advance(timedelta(minutes=1))
    consumer = open_kernel()
    assert len(consumer.dequeue().hands) == 1
    lost = [Beat(hand.lease_id, None, [])]
    assert waits.unhindered(on(lambda worker: heartbeat(worker, hand.lease_id))) == lost
    consumer.commit()
    assert heartbeat(kernel, hand.lease_id) == lost


def test_heartbeats_of_one_lease_wait_for_each_other(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, clock: Clock
) -> None:
    """A heartbeat that waited until its lease had expired does not bring it back."""
    kernel.enqueue("a")
    (hand,) = kernel.dequeue(lease=10 * SECOND).hands
    other = open_kernel()
    other.rows("update fq_lease set consumer = 'same'")
    rival = waits.start(on(lambda worker: heartbeat(worker, hand.lease_id))).blocked()
    clock.advance(timedelta(minutes=1))
    other.commit()
    assert rival.result() == [Beat(hand.lease_id, None, [])]


@pytest.mark.parametrize("verb", ["complete", "release", "retry", "bury"])
def test_a_cancel_waits_for_whoever_settles(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, verb: str) -> None:
    """A cancel of a message that is just being settled waits: given back it is withdrawn, ended it is missing."""
    kernel.enqueue("a")
    (hand,) = kernel.dequeue().hands
    worker = open_kernel()
    assert getattr(worker, verb)(hand) == {}
    rival = waits.start(on(lambda second: second.cancel(hand.id))).blocked()
    worker.commit()
    assert rival.result() == ({} if verb in {"release", "retry"} else {hand.id: "missing"})
    assert kernel.value("select count(*) from fq_message") == 0
    assert unbalanced(kernel) == []


def test_a_cancel_of_a_message_in_flight_flags_it(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A cancel that waited for the dequeue that takes the message flags it, so that it does not come again."""
    (added,) = kernel.enqueue("a")
    consumer = open_kernel()
    (hand,) = consumer.dequeue().hands
    rival = waits.start(on(lambda second: second.cancel(added.message_id))).blocked()
    consumer.commit()
    assert rival.result() == {added.message_id: "leased"}
    assert kernel.release(hand) == {}
    assert kernel.drain() == []


def test_a_worker_settles_what_is_being_cancelled(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A completion that meets an open cancel waits for it and then counts: the message is the worker's."""
    kernel.enqueue("a")
    (hand,) = kernel.dequeue().hands
    business = open_kernel()
    business.cancel(hand.id)
    rival = waits.start(on(lambda worker: worker.complete(hand))).blocked()
    business.commit()
    assert rival.result() == {}
    assert kernel.value("select count(*) from fq_message") == 0


def test_messages_are_held_in_the_order_of_their_ids(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """fq_lock_messages waits at the least id, however they are given, and holds none above it; unknown ones are passed
    over.
    """
    one, two = (row.message_id for row in kernel.enqueue("a", "a"))
    gate = open_kernel()
    lock_messages(gate, one)
    rival = waits.start(on(lambda second: lock_messages(second, two, one, two, 99, None))).blocked()
    assert waits.unhindered(on(lambda free: free.cancel(two))) == {}
    gate.rollback()
    rival.result()
