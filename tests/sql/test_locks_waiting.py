"""Lock waits between pairs of verbs, one of them in an open transaction."""

from collections.abc import Callable
from functools import partial

import pytest
from sqlalchemy import Engine

from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.client import HOUR, Kernel, OpenKernel, on

Verb = Callable[[Kernel, list[Hand]], object]

VERBS: dict[str, Verb] = {
    "enqueue": lambda kernel, _: kernel.enqueue("a", "b"),
    "enqueue_key": lambda kernel, _: kernel.enqueue("a", keys=["key"]),
    "enqueue_new": lambda kernel, _: kernel.enqueue("new"),
    "dequeue": lambda kernel, _: kernel.dequeue(2),
    "hear": lambda kernel, _: kernel.hear(),
    "complete": lambda kernel, hands: kernel.complete(*hands[:2]),
    "release": lambda kernel, hands: kernel.release(*hands[:2]),
    "retry": lambda kernel, hands: kernel.retry(*hands[:2]),
    "bury": lambda kernel, hands: kernel.bury(*hands[:2]),
    "extend": lambda kernel, hands: kernel.extend(hands[0].lease_id, HOUR, *hands[:2]),
    "cancel": lambda kernel, _: kernel.cancel(*_ready(kernel)),
    "configure": lambda kernel, _: kernel.configure("a", 5),
    "configure_queue": lambda kernel, _: kernel.configure_queue(5),
}

# The second waits for the open first. Every other pair passes at once.
WAITING = {
    # unique: a key, the first use of a channel
    ("enqueue_key", "enqueue_key"),
    ("enqueue_new", "enqueue_new"),
    # the same messages
    *(
        (one, other)
        for one in ("complete", "release", "retry", "bury")
        for other in ("complete", "release", "retry", "bury")
    ),
    ("cancel", "cancel"),
    ("dequeue", "cancel"),
    # configuration takes the channel's state, which consumers hold for one call, and counts the messages that are out
    ("configure", "configure"),
    ("dequeue", "configure"),
    ("hear", "configure"),
    *((settling, "configure") for settling in ("complete", "release", "retry", "bury")),
    *(("configure", settling) for settling in ("complete", "release", "retry", "bury")),
    ("configure_queue", "configure_queue"),
    # one row a lease
    ("extend", "extend"),
}


def _ready(kernel: Kernel) -> list[int]:
    rows = kernel.rows("select m.id from fq_message m where m.lease_id is null and m.content = 'early' order by m.id")
    return [row["id"] for row in rows]


def _stage(kernel: Kernel) -> list[Hand]:
    """Four messages out, six ready, with signals of all channels still to be heard."""
    kernel.enqueue(*["a", "b"] * 5, contents=[b"early"] * 10)
    hands = kernel.dequeue(4).hands
    kernel.enqueue("a", "b", contents=[b"late"] * 2)
    return hands


@pytest.mark.parametrize("first", VERBS)
def test_only_the_named_verbs_wait(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, first: str) -> None:
    """While one verb is in an open transaction, each other verb passes at once, except those that are named to wait."""
    hands = _stage(kernel)
    holder = open_kernel()
    VERBS[first](holder, hands)
    for second, verb in VERBS.items():
        if second == "cancel" and first == "dequeue":
            continue
        if (first, second) not in WAITING:
            waits.unhindered(_undone(verb, hands))


@pytest.mark.parametrize(("first", "second"), sorted(WAITING))
def test_the_named_verbs_wait(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, first: str, second: str) -> None:
    """A verb that needs what another holds waits for its transaction and then goes on, without an error."""
    hands = _stage(kernel)
    ready = _ready(kernel)
    holder = open_kernel()
    VERBS[first](holder, hands)
    verb = (lambda rival, _: rival.cancel(*ready)) if second == "cancel" else VERBS[second]
    rival = waits.start(on(lambda rival: verb(rival, hands))).blocked()
    holder.commit()
    rival.result()


def test_a_change_of_a_plan_waits_for_who_puts_a_channel_on_it(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits
) -> None:
    """Otherwise the change would not be spread to that channel. The other way round the later one waits, too."""
    change = "select fq_configure_plan('q', 'gold', '{\"weight\": 2}')"
    kernel.rows(change)
    follow = "select fq_configure_channel('q', 'a', '{\"plan\": \"gold\"}')"
    for first, second in ((follow, change), (change, follow)):
        holder = open_kernel()
        holder.rows(first)
        rival = waits.start(on(partial(Kernel.rows, sql=second))).blocked()
        holder.commit()
        rival.result()


def _undone(verb: Verb, hands: list[Hand]) -> Callable[[Engine], None]:
    """The verb in a transaction that is rolled back, so that the next one meets the same stage."""

    def run(kernel: Kernel) -> None:
        kernel.connection.autocommit = False
        verb(kernel, hands)
        kernel.rollback()

    return on(run)
