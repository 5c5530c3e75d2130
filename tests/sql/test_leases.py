"""Leases: hand-outs that look alike, leases that end while they are in use, run on or end with their consumer, and who
gives back what.
"""

from dataclasses import replace
from datetime import timedelta

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel, on


def test_a_reclaimed_lease_takes_nothing(kernel: Kernel, open_kernel: OpenKernel, clock: Clock) -> None:
    """Dequeue locks its own lease: under one that is gone, expired or being reclaimed a stalled consumer takes nothing,
    it gets a new one.
    """
    kernel.enqueue(*["a"] * 5)
    stalled = kernel.dequeue(lease=SECOND)
    clock.advance(timedelta(seconds=2))
    reclaiming = open_kernel()
    reclaiming.rows("select fq_reclaim('q', 100)")
    clock.advance(timedelta(seconds=-2))
    during = kernel.dequeue(lease=1, lease_id=stalled.lease_id)
    reclaiming.commit()
    after = kernel.dequeue(lease=1, lease_id=stalled.lease_id)
    leases = {stalled.lease_id, during.lease_id, after.lease_id}
    assert None not in leases
    assert len(leases) == 3
    clock.advance(timedelta(hours=1))
    assert len(kernel.drain()) == 5


def test_a_lease_in_use_outlives_its_end(kernel: Kernel, open_kernel: OpenKernel, clock: Clock) -> None:
    """A dequeue that stalls past its lease's end keeps that lease from being dropped: what it took is given back
    afterwards.
    """
    kernel.enqueue("a", "a")
    lease_id = kernel.dequeue(lease=HOUR).lease_id
    stalled = open_kernel()
    assert stalled.dequeue(lease=SECOND, lease_id=lease_id).lease_id == lease_id
    clock.advance(timedelta(hours=2))
    assert kernel.value("select fq_reclaim('q', 100)") == 0
    stalled.commit()
    assert len(kernel.dequeue(10).hands) == 2


def test_locked_leases_do_not_hide_expired_ones(kernel: Kernel, open_kernel: OpenKernel, clock: Clock) -> None:
    """Reclaim goes on behind leases whose messages are in open completions: the 301st comes back."""
    kernel.enqueue(*["a"] * 301)
    hands = [kernel.dequeue(lease=HOUR).hands[0] for _ in range(301)]
    clock.advance(timedelta(hours=2))
    completing = open_kernel()
    assert completing.complete(*hands[:300]) == {}
    assert kernel.dequeue(10).ids == [hands[300].id]
    completing.commit()
    assert kernel.value("select count(*) from fq_message") == 1


def test_expired_messages_stand_where_they_stood(kernel: Kernel, clock: Clock) -> None:
    """What a lease gives back goes into its own channel's turn: it is first there, and goes ahead of no other channel's
    turn.
    """
    kernel.enqueue(*["a"] * 4, *["b"] * 4)
    first = kernel.dequeue(1)
    clock.advance(timedelta(hours=1))
    assert first.channels == ["a"]
    served = [kernel.dequeue(1, lease=2 * HOUR) for _ in range(3)]
    assert [call.channels[0] for call in served] == ["b", "a", "b"]
    assert served[1].ids == first.ids


def test_attempts_run_out_by_expiry(kernel: Kernel, clock: Clock) -> None:
    """A message whose lease expires at its last attempt becomes a dead letter that names the consumer, and its slot is
    free.
    """
    kernel.configure("a", 1)
    kernel.enqueue("a", "a", max_attempts=[1, None])
    (hand,) = kernel.dequeue(2, lease=SECOND).hands
    clock.advance(timedelta(hours=1))
    (other,) = kernel.dequeue(2).hands
    assert other.id != hand.id
    assert kernel.value("select reason from fq_dead_letter") == "the lease of consumer me expired at attempt 1 of 1"


def test_a_letter_with_the_id_of_a_message_holds_nobody_up(kernel: Kernel, clock: Clock) -> None:
    """Where a sequence was set back a message cannot become a letter: it goes back, and the others are served."""
    [first] = kernel.enqueue("a")
    kernel.bury(*kernel.dequeue(1).hands)
    kernel.rows(f"alter table fq_message alter column id restart with {first.message_id}")
    [again] = kernel.enqueue("b", max_attempts=[1])
    assert again.message_id == first.message_id
    assert len(kernel.dequeue(1, lease=SECOND).hands) == 1
    [third] = kernel.enqueue("c")
    clock.advance(timedelta(seconds=2))
    served = {hand.id: hand.attempt for hand in kernel.drain()}
    assert served == {first.message_id: 2, third.message_id: 1}
    assert kernel.value("select count(*) from fq_dead_letter") == 1


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
