"""Lock waits between the verbs of a message's life. A dequeue never waits for any of them."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel, on
from tests.sql.kernel.verbs import bound, unbalanced
from tests.sql.life.verbs import (
    end_wait,
    enqueue,
    heartbeat,
    keep_history,
    lock_messages,
    purge_channel,
    purge_dead,
    redrive,
    wait,
)

Verb = Callable[[Kernel, list[Hand]], object]

VERBS: dict[str, Verb] = {
    "enqueue": lambda kernel, _: enqueue(kernel, "a", "b", notify=True),
    "enqueue, bounded": lambda kernel, _: enqueue(kernel, "full", "full", notify=True),
    "replace waiting": lambda kernel, _: enqueue(kernel, "a", keys=["waiting"], on="replace"),
    "replace leased": lambda kernel, _: enqueue(kernel, "a", keys=["leased"], on="replace"),
    "cancel leased": lambda kernel, hands: kernel.cancel(hands[0].id),
    "hold": lambda kernel, hands: lock_messages(kernel, hands[0].id),
    "complete": lambda kernel, hands: kernel.complete(hands[0]),
    "retry": lambda kernel, hands: kernel.retry(hands[0]),
    "purge": lambda kernel, _: purge_channel(kernel, "a"),
    "redrive": lambda kernel, _: redrive(kernel),
    "purge dead": lambda kernel, _: purge_dead(kernel),
    "heartbeat": lambda kernel, hands: heartbeat(kernel, hands[0].lease_id),
    "wait": lambda kernel, hands: wait(kernel, hands[0].lease_id),
    "end_wait": lambda kernel, hands: end_wait(kernel, hands[0].lease_id),
    "dequeue": lambda kernel, _: kernel.dequeue(3),
    "hear": lambda kernel, _: kernel.hear(),
}

_SETTLE = ("complete", "retry", "cancel leased", "hold", "replace leased")
_LEASE = ("heartbeat", "wait", "end_wait")

# The second waits for the open first. Every other pair passes at once.
WAITING = {
    # the same message, the same key
    *((one, other) for one in _SETTLE for other in _SETTLE),
    ("replace waiting", "replace waiting"),
    ("purge", "replace waiting"),
    ("dequeue", "replace waiting"),
    # the channel's state, which consumers hold for one call
    ("purge", "purge"),
    ("dequeue", "purge"),
    ("hear", "purge"),
    # one row a lease
    *((one, other) for one in _LEASE for other in _LEASE),
}


def _stage(kernel: Kernel) -> list[Hand]:
    """A message out, two that wait, one dead, a consumer that waits; a bounded channel; signals to be heard."""
    kernel.set_queue(history=True)
    bound(kernel, "full", 100)
    enqueue(kernel, "a", "dead", keys=["leased", "dead"])
    hands = kernel.dequeue(2).hands
    kernel.bury(*(hand for hand in hands if hand.channel == "dead"))
    wait(kernel, hands[0].lease_id, HOUR)
    enqueue(kernel, "a", keys=["waiting"])
    enqueue(kernel, "b", "full")
    return [hand for hand in hands if hand.channel == "a"]


@pytest.mark.parametrize("first", VERBS)
def test_only_the_named_verbs_wait(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, first: str) -> None:
    """While one verb is in an open transaction, each other verb passes at once, except those that are named to wait."""
    hands = _stage(kernel)
    holder = open_kernel()
    VERBS[first](holder, hands)

    def undone(verb: Verb) -> Callable[[Kernel], None]:
        def run(other: Kernel) -> None:
            other.connection.autocommit = False
            verb(other, hands)
            other.rollback()

        return run

    for second, verb in VERBS.items():
        if (first, second) not in WAITING:
            waits.unhindered(on(undone(verb)))


@pytest.mark.parametrize(("first", "second"), sorted(WAITING))
def test_the_named_verbs_wait(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, first: str, second: str) -> None:
    """A verb that needs what another holds waits for its transaction and then goes on; all sums are right then."""
    hands = _stage(kernel)
    holder = open_kernel()
    VERBS[first](holder, hands)
    rival = waits.start(on(lambda other: VERBS[second](other, hands))).blocked()
    holder.commit()
    rival.result()
    assert unbalanced(kernel) == []


HOLDERS: dict[str, Callable[[Kernel, list[Hand]], object]] = {
    **{name: verb for name, verb in VERBS.items() if name not in {"dequeue", "hear"}},
    "days of the history": lambda kernel, _: keep_history(kernel),
    "everything": lambda kernel, _: kernel.rows("select from fq_message, fq_lease, fq_dead_letter for update"),
}


@pytest.mark.parametrize("held", HOLDERS)
def test_a_dequeue_never_waits(kernel: Kernel, open_kernel: OpenKernel, clock: Clock, waits: Waits, held: str) -> None:
    """Whatever a verb holds, dequeue and hear return at once, with an expired lease to reclaim."""
    hands = _stage(kernel)
    enqueue(kernel, "a")
    kernel.dequeue(1, lease=SECOND)
    clock.advance(timedelta(minutes=1))
    enqueue(kernel, "a", "c")
    keep_history(kernel, 1)
    holder = open_kernel()
    HOLDERS[held](holder, hands)
    for _ in range(2):
        waits.unhindered(on(lambda other: other.dequeue(2, lease=SECOND)))
        waits.unhindered(on(lambda other: other.hear()))
    holder.rollback()
    assert unbalanced(kernel) == []
