"""A backend that dies anywhere leaves nothing half done: nothing is lost, nothing is stuck, and slots come back."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel, on

Step = Callable[[Kernel, list[Hand]], object]

TRANSACTIONS: dict[str, list[Step]] = {
    "enqueue": [
        lambda business, _: business.enqueue("a", "new"),
        lambda business, _: business.enqueue("b", "b", keys=["k", "l"]),
        lambda business, _: business.cancel(*range(5, 11)),
    ],
    "dequeue": [
        lambda consumer, _: consumer.hear(),
        lambda consumer, _: consumer.dequeue(2),
        lambda consumer, _: consumer.dequeue(3),
    ],
    "complete": [
        lambda business, hands: business.complete(hands[0]),
        lambda business, hands: business.retry(hands[1], error="boom"),
        lambda business, hands: business.bury(hands[2]),
        lambda business, hands: business.release(hands[3]),
        lambda business, _: business.enqueue("a"),
    ],
}


def _kill(kernel: Kernel, victim: int) -> None:
    """End a backend and return when it is gone."""
    assert kernel.value("select pg_terminate_backend(%(pid)s, 60000)", pid=victim)


def _stage(kernel: Kernel) -> list[Hand]:
    kernel.configure("a", 5)
    kernel.enqueue(*["a", "b"] * 5)
    return kernel.dequeue(4, lease=HOUR).hands


@pytest.mark.parametrize("name", TRANSACTIONS)
def test_death_between_any_two_statements(kernel: Kernel, open_kernel: OpenKernel, clock: Clock, name: str) -> None:
    """Killed after any statement of its transaction, a verb has done nothing: the holder still holds, the rest is
    ready, and all ends well.
    """
    hands = _stage(kernel)
    before = kernel.rows("select * from fq_message order by id")
    for steps in range(1, len(TRANSACTIONS[name]) + 1):
        victim = open_kernel()
        for step in TRANSACTIONS[name][:steps]:
            step(victim, hands)
        _kill(kernel, victim.pid)
        with pytest.raises(psycopg.OperationalError):
            victim.value("select 1")
        assert kernel.rows("select * from fq_message order by id") == before
        assert kernel.value("select count(*) from fq_dead_letter") == 0
    assert kernel.complete(hands[0]) == {}
    assert len(kernel.drain()) == 6
    clock.advance(timedelta(hours=2))
    assert sorted(hand.id for hand in kernel.drain()) == sorted(hand.id for hand in hands[1:])
    kernel.hear()
    assert kernel.state("a")["current_concurrency"] == 0
    assert kernel.value("select count(*) from fq_lease where expires_at < fq_now()") == 0


def test_a_dead_consumer_s_messages_and_slots_come_back(kernel: Kernel, open_kernel: OpenKernel, clock: Clock) -> None:
    """What a consumer held when it died stays out until its lease ends, slots included, and comes back then, once."""
    kernel.configure("a", 2)
    kernel.enqueue("a", "a", "a")
    consumer = open_kernel(autocommit=True, name="doomed")
    held = consumer.dequeue(5, lease=HOUR)
    _kill(kernel, consumer.pid)
    assert len(held.hands) == 2
    assert kernel.dequeue(5).hands == []
    clock.advance(timedelta(hours=2))
    again = kernel.dequeue(5)
    assert again.ids == held.ids
    assert [hand.attempt for hand in again.hands] == [2, 2]
    assert kernel.dequeue(5).hands == []
    assert kernel.complete(*held.hands) == dict.fromkeys(held.ids, "lost")
    assert kernel.complete(*again.hands) == {}
    assert len(kernel.drain()) == 1


@pytest.mark.parametrize("blocked", ["enqueue", "complete", "configure"])
def test_death_while_waiting_for_a_lock(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, blocked: str) -> None:
    """Killed while it waits inside a function, a verb leaves nothing and holds nobody up."""
    hands = _stage(kernel)
    holder = open_kernel()
    holder.complete(hands[0])
    holder.enqueue("b", keys=["k"])
    verbs: dict[str, Callable[[Kernel], object]] = {
        "enqueue": lambda victim: victim.enqueue("a", "b", keys=["x", "k"]),
        "complete": lambda victim: victim.complete(*hands[::-1]),
        "configure": lambda victim: victim.configure(hands[0].channel, 1),
    }
    if blocked == "configure":
        # Messages of an unlimited channel are waited for, to be counted.
        hands = [hand for hand in hands if hand.channel == "b"]
        holder.complete(hands[0])
    rival = waits.start(on(verbs[blocked])).blocked()
    victim = kernel.value(
        "select pid from pg_stat_activity where datname = current_database() and application_name = %(name)s",
        name=rival.name,
    )
    _kill(kernel, victim)
    assert isinstance(rival.error(), psycopg.OperationalError)
    holder.rollback()
    assert kernel.value("select count(*) from fq_message where key is not null") == 0
    assert kernel.complete(*hands) == {}
    assert kernel.enqueue("a", "b", keys=["x", "k"])[1].created
    assert len(kernel.drain()) == 8


def test_death_during_a_reclaim(kernel: Kernel, open_kernel: OpenKernel, clock: Clock) -> None:
    """A reclaim that dies before its commit is done by the next consumer, once."""
    kernel.configure("a", 1)
    kernel.enqueue("a")
    kernel.dequeue(lease=SECOND)
    clock.advance(timedelta(minutes=1))
    victim = open_kernel()
    assert len(victim.dequeue().hands) == 1
    _kill(kernel, victim.pid)
    (hand,) = kernel.dequeue().hands
    assert (hand.attempt, hand.deliveries) == (2, 2)
    assert kernel.complete(hand) == {}
    kernel.hear()
    assert kernel.state("a")["current_concurrency"] == 0
