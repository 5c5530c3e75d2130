"""fq_wait, fq_wake: a waiting consumer is woken, and no notification is sent while none waits."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from psycopg import errors

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel, on
from tests.sql.life.verbs import end_wait, listening, redrive, wait, wake


def _redrive(kernel: Kernel) -> None:
    kernel.bury(*kernel.dequeue().hands)
    redrive(kernel, notify=True)


VERBS: dict[str, Callable[[Kernel], object]] = {
    "enqueue": lambda kernel: kernel.enqueue("a", notify=True),
    "enqueue, several": lambda kernel: kernel.enqueue("a", "b", notify=True),
    "enqueue, new channel": lambda kernel: kernel.enqueue("new", notify=True),
    "enqueue, keyed": lambda kernel: kernel.enqueue("a", keys=["other"], notify=True),
    "enqueue, replacing": lambda kernel: kernel.enqueue("a", keys=["k"], on="replace", notify=True),
    "release": lambda kernel: kernel.release(*kernel.dequeue().hands, notify=True),
    "retry": lambda kernel: kernel.retry(*kernel.dequeue().hands, notify=True),
    "redrive": _redrive,
    "wake": wake,
}
SILENT: dict[str, Callable[[Kernel], object]] = {
    "enqueue": lambda kernel: kernel.enqueue("a"),
    "enqueue, several": lambda kernel: kernel.enqueue("a", "b"),
    "enqueue, keyed": lambda kernel: kernel.enqueue("a", keys=["k"], on="replace"),
    "a duplicate": lambda kernel: kernel.enqueue("a", keys=["k"], notify=True),
    "a duplicate in a batch": lambda kernel: kernel.enqueue("a", "a", keys=["k", "k"], notify=True),
    "release": lambda kernel: kernel.release(*kernel.dequeue().hands),
    "retry": lambda kernel: kernel.retry(*kernel.dequeue().hands),
    "complete": lambda kernel: kernel.complete(*kernel.dequeue().hands),
    "nothing given back": lambda kernel: (kernel.release(notify=True), kernel.retry(notify=True)),
    "nothing redriven": lambda kernel: redrive(kernel, notify=True),
}


def test_work_wakes_a_waiting_consumer(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Each verb that makes work ready notifies, once, with the lease and topic of the wait, if it is told to."""
    kernel.enqueue(*"aaaa", keys=["k", None, None, None])
    lease_id, topic = wait(kernel)
    business = open_kernel(autocommit=True)
    for name, verb in VERBS.items():
        with listening(kernel) as heard:
            verb(business)
        assert heard == [f"{lease_id}:{topic}"], name


def test_one_of_the_waiting_consumers_is_named(kernel: Kernel) -> None:
    """Each of a few is, now and then; of more than eight, one of those that began to wait last."""
    first = {wait(kernel, wait=HOUR)[0] for _ in range(3)}
    with listening(kernel) as heard:
        for _ in range(100):
            wake(kernel)
    assert {int(payload.partition(":")[0]) for payload in heard} == first
    later = {wait(kernel, wait=2 * HOUR)[0] for _ in range(8)}
    with listening(kernel) as heard:
        for _ in range(20):
            wake(kernel)
    assert {int(payload.partition(":")[0]) for payload in heard} <= later


def test_nobody_is_notified_while_none_waits(kernel: Kernel, clock: Clock) -> None:
    """If none of this queue waits, nothing is notified: none ever, of another queue, a wait that is over or ended."""
    kernel.enqueue(*"aaaa", keys=["k", None, None, None])
    wait(Kernel(kernel.connection, queue="other"), wait=HOUR)
    wait(kernel, wait=SECOND)
    clock.advance(timedelta(seconds=2))
    lease_id, _ = wait(kernel)
    end_wait(kernel, lease_id)
    for verb in VERBS.values():
        with listening(kernel) as heard:
            verb(kernel)
        assert heard == []


def test_what_makes_no_work_ready_or_is_told_not_to_is_silent(kernel: Kernel) -> None:
    """Without p_notify, and where nothing became ready, nobody is notified."""
    kernel.enqueue(*"aaaa", keys=["k", None, None, None])
    wait(kernel, wait=HOUR)
    for verb in SILENT.values():
        with listening(kernel) as heard:
            verb(kernel)
        assert heard == []


def test_the_topic_is_of_a_queue_and_an_installation(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """The topic is the same for all consumers of a queue, on old leases and new ones, and another queue has another."""
    lease_id, topic = wait(kernel)
    assert wait(kernel, lease_id) == (lease_id, topic)
    assert wait(open_kernel(autocommit=True))[1] == topic
    assert topic.endswith(":q")
    assert wait(Kernel(kernel.connection, queue="other"))[1] != topic


def test_a_mark_stands_on_the_consumers_lease(kernel: Kernel) -> None:
    """A lease that is alive is used again and lives through the wait, and is never shortened; its messages stay."""
    kernel.enqueue("a")
    (hand,) = kernel.dequeue(lease=HOUR // 2).hands
    assert wait(kernel, hand.lease_id, HOUR)[0] == hand.lease_id
    now = kernel.value("select fq_now()")
    (lease,) = kernel.rows("select * from fq_lease")
    assert now + HOUR - 60 * SECOND < lease["waiting_until"] == lease["expires_at"] <= now + HOUR
    wait(kernel, hand.lease_id, SECOND)
    (again,) = kernel.rows("select * from fq_lease")
    assert again["expires_at"] == lease["expires_at"]
    assert again["waiting_until"] < lease["waiting_until"]
    assert kernel.complete(hand) == {}


def test_a_lease_that_is_not_alive_is_not_used_again(kernel: Kernel, clock: Clock) -> None:
    """An expired lease, an unknown one and one of another queue get a new one in their place."""
    expired, _ = wait(kernel, wait=SECOND)
    foreign, _ = wait(Kernel(kernel.connection, queue="other"), wait=HOUR)
    clock.advance(timedelta(seconds=2))
    made = {wait(kernel, lease_id)[0] for lease_id in (expired, foreign, 7, None)}
    assert len(made) == 4
    assert not made & {expired, foreign, 7}
    assert kernel.value("select consumer from fq_lease where queue = 'q' limit 1") == "me"


def test_the_lease_of_a_dead_waiting_consumer_goes(kernel: Kernel, clock: Clock) -> None:
    """Leases made only to wait are removed by the next dequeue once they are over."""
    wait(kernel)
    clock.advance(timedelta(minutes=1))
    kernel.dequeue()
    assert kernel.value("select count(*) from fq_lease") == 0


def test_a_wait_is_registered_before_the_last_poll(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """What commits before the wait is found by the poll after it, and what asks after it notifies: one of both, always.

    The third case is the race that stays: a transaction that asked before the wait and commits after the poll. Its
    message is found at the end of the wait.
    """
    business = open_kernel()
    business.enqueue("a", notify=True)
    business.commit()
    lease_id, topic = wait(kernel)
    assert len(kernel.dequeue().hands) == 1
    with listening(kernel) as heard:
        business.enqueue("a", notify=True)
        business.commit()
    assert heard == [f"{lease_id}:{topic}"]
    end_wait(kernel, lease_id)
    kernel.drain()
    business.enqueue("a", notify=True)
    wait(kernel, lease_id)
    assert kernel.dequeue().hands == []
    with listening(kernel) as heard:
        business.commit()
    assert heard == []
    assert len(kernel.dequeue().hands) == 1


def test_a_transaction_that_is_not_told_to_notify_can_be_prepared(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """With p_notify false every verb can be part of a two-phase transaction, also while a consumer waits."""
    kernel.enqueue("a", "a", "a")
    one, two, three = kernel.dequeue(3).hands
    kernel.bury(three)
    wait(kernel, wait=HOUR)
    business = open_kernel()
    business.enqueue("a")
    business.release(one)
    business.retry(two)
    redrive(business, three.id)
    business.rows("prepare transaction 'life'")
    business.commit()
    kernel.rows("rollback prepared 'life'")
    business.enqueue("a", notify=True)
    with pytest.raises(errors.Error):
        business.rows("prepare transaction 'life'")


def test_a_mark_waits_for_an_extension(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A wait under a lease that is just being extended waits for that, and keeps the later end."""
    lease_id, _ = wait(kernel)
    other = open_kernel()
    end = other.extend(lease_id, 24 * HOUR)
    rival = waits.start(on(lambda waiter: wait(waiter, lease_id))).blocked()
    other.commit()
    assert rival.result()[0] == lease_id
    assert kernel.value("select expires_at from fq_lease") == end


def test_no_verb_waits_for_a_mark(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """While a wait is being registered in an open transaction, consumers dequeue and producers ask without waiting."""
    kernel.enqueue("a", "a")
    (hand,) = kernel.dequeue().hands
    waiter = open_kernel()
    wait(waiter, hand.lease_id)

    def others(other: Kernel) -> None:
        other.enqueue("a", notify=True)
        assert len(other.dequeue(lease_id=hand.lease_id, lease=SECOND).hands) == 1
        assert other.complete(hand) == {}

    waits.unhindered(on(others))
