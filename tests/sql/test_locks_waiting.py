"""Lock waits between pairs of verbs, one of them in an open transaction. A dequeue never waits for any of them."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import product
from typing import NamedTuple

import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel, on
from tests.sql.kernel.verbs import bound, limit, pause, resume, unbalanced
from tests.sql.life.verbs import (
    end_wait,
    heartbeat,
    keep_history,
    lock_messages,
    purge_channel,
    purge_dead,
    redrive,
    wait,
)

Verb = Callable[[Kernel, list[Hand]], object]


class Scene(NamedTuple):
    """What stands in the queue, the deliveries that are out; the verbs, and pairs of which the second waits for the
    open first. Every other pair passes at once.
    """

    stage: Callable[[Kernel], list[Hand]]
    verbs: dict[str, Verb]
    waiting: set[tuple[str, str]]


def _many(kernel: Kernel) -> list[Hand]:
    """Four messages out, six ready, with signals of all channels still to be heard."""
    kernel.enqueue(*["a", "b"] * 5, contents=[b"early"] * 10)
    hands = kernel.dequeue(4).hands
    kernel.enqueue("a", "b", contents=[b"late"] * 2)
    return hands


def _cancel_ready(kernel: Kernel, _: list[Hand]) -> None:
    rows = kernel.rows("select id from fq_message where lease_id is null and content = 'early' order by id")
    kernel.cancel(*(row["id"] for row in rows))


_SETTLING = {"complete", "release", "retry", "bury"}
# What takes the state row of channel a; what takes the queue's row. To resume a queue that is not paused takes none.
_CHANNEL = {"pause", "resume", "bound", "configure"}
_QUEUE = {"pause_queue", "limit", "unlimit", "record", "configure_queue"}

_LIMITS = Scene(
    _many,
    {
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
        "cancel": _cancel_ready,
        "configure": lambda kernel, _: kernel.configure("a", 5),
        "configure_queue": lambda kernel, _: kernel.configure_queue(5),
        "pause": lambda kernel, _: pause(kernel, "a"),
        "resume": lambda kernel, _: resume(kernel, "a"),
        "bound": lambda kernel, _: bound(kernel, "a", 5),
        "pause_queue": lambda kernel, _: pause(kernel),
        "resume_queue": lambda kernel, _: resume(kernel),
        "limit": lambda kernel, _: limit(kernel, 5),
        "unlimit": lambda kernel, _: limit(kernel, None),
        "record": lambda kernel, _: kernel.set_queue(history=True),
    },
    {
        # unique: a key, the first use of a channel; one row a lease
        *((verb, verb) for verb in ("enqueue_key", "enqueue_new", "extend")),
        # the same messages
        *product(_SETTLING, _SETTLING),
        *product({"cancel", "dequeue"}, {"cancel"}),
        # the channel's state, which consumers hold for one call; its limit counts the messages that are out
        *product(_CHANNEL | {"dequeue", "hear"}, _CHANNEL),
        *product(_SETTLING, {"configure"}),
        *product({"configure"}, _SETTLING),
        *product(_QUEUE, _QUEUE),
        # a limit counts the messages that are out, and a dequeue under way is taking some
        *product(_SETTLING | {"dequeue", "hear"}, {"limit"}),
        *product({"dequeue", "hear"}, {"unlimit"}),
        *product({"limit"}, _SETTLING),
        # the first limit has the channels, from which nothing may be taken
        *product(_CHANNEL, {"limit"}),
        *product({"limit"}, _CHANNEL),
    },
)


def _few(kernel: Kernel) -> list[Hand]:
    """A message out, two that wait, one dead, a consumer that waits; a bounded channel; signals to be heard."""
    kernel.set_queue(history=True)
    bound(kernel, "full", 100)
    kernel.enqueue("a", "dead", keys=["leased", "dead"])
    hands = kernel.dequeue(2).hands
    kernel.bury(*(hand for hand in hands if hand.channel == "dead"))
    wait(kernel, hands[0].lease_id, HOUR)
    kernel.enqueue("a", keys=["waiting"])
    kernel.enqueue("b", "full")
    return [hand for hand in hands if hand.channel == "a"]


_SETTLE = {"complete", "retry", "cancel leased", "hold", "replace leased"}
_LEASE = {"heartbeat", "wait", "end_wait"}

_LIFE = Scene(
    _few,
    {
        "enqueue": lambda kernel, _: kernel.enqueue("a", "b", notify=True),
        "enqueue, bounded": lambda kernel, _: kernel.enqueue("full", "full", notify=True),
        "replace waiting": lambda kernel, _: kernel.enqueue("a", keys=["waiting"], on="replace"),
        "replace leased": lambda kernel, _: kernel.enqueue("a", keys=["leased"], on="replace"),
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
    },
    {
        # the same message, the same key
        *product(_SETTLE, _SETTLE),
        *product({"replace waiting", "purge", "dequeue"}, {"replace waiting"}),
        # the channel's state, which consumers hold for one call
        *product({"purge", "dequeue", "hear"}, {"purge"}),
        # one row a lease
        *product(_LEASE, _LEASE),
    },
)

_SCENES = {"limits": _LIMITS, "life": _LIFE}


@pytest.mark.parametrize(("name", "first"), [(name, verb) for name, scene in _SCENES.items() for verb in scene.verbs])
def test_only_the_named_verbs_wait(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, name: str, first: str
) -> None:
    """While one verb is in an open transaction, each other verb passes at once, except those that are named to wait."""
    stage, verbs, waiting = _SCENES[name]
    hands = stage(kernel)
    verbs[first](open_kernel(), hands)

    def undone(verb: Verb, rival: Kernel) -> None:
        rival.connection.autocommit = False
        verb(rival, hands)
        rival.rollback()

    for second, verb in verbs.items():
        if (first, second) not in waiting:
            waits.unhindered(on(partial(undone, verb)))


@pytest.mark.parametrize(
    ("name", "pair"), [(name, pair) for name, scene in _SCENES.items() for pair in sorted(scene.waiting)], ids=str
)
def test_the_named_verbs_wait(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, name: str, pair: tuple[str, str]
) -> None:
    """A verb that needs what another holds waits for its transaction and then goes on; all sums are right then."""
    stage, verbs, _ = _SCENES[name]
    hands = stage(kernel)
    holder = open_kernel()
    verbs[pair[0]](holder, hands)
    rival = waits.start(on(lambda other: verbs[pair[1]](other, hands))).blocked()
    holder.commit()
    rival.result()
    assert unbalanced(kernel) == []


_ROWS = {
    "state rows": "select from fq_channel_state for update",
    "messages": "select from fq_message for update",
    "messages, shared": "select from fq_message for share",
    "channels": "select from fq_channel for update",
    "everything": "select from fq_message, fq_lease, fq_dead_letter for update",
    "every message changed": "update fq_message set headers = '{}'",
}
_HOLDERS: dict[str, Verb] = {
    **_LIMITS.verbs,
    **{f"life: {name}": verb for name, verb in _LIFE.verbs.items()},
    "days of the history": lambda kernel, _: keep_history(kernel),
}


@pytest.mark.parametrize("held", [*_HOLDERS, *_ROWS])
def test_a_dequeue_never_waits(kernel: Kernel, open_kernel: OpenKernel, clock: Clock, waits: Waits, held: str) -> None:
    """Whatever rows but signals others hold, dequeue and hear return at once, with an expired lease to reclaim; nothing
    is lost by it.
    """
    hands = _few(kernel)
    kernel.enqueue("a", "a")
    kernel.dequeue(1, lease=SECOND)
    own = kernel.dequeue(1, lease=HOUR)
    clock.advance(timedelta(minutes=1))
    kernel.enqueue("a", "c")
    keep_history(kernel, 1)
    holder = open_kernel()
    if held in _ROWS:
        holder.rows(_ROWS[held])
    else:
        _HOLDERS[held](holder, hands)
    for _ in range(2):
        waits.unhindered(on(lambda other: other.dequeue(1, lease=SECOND, lease_id=own.lease_id)))
        waits.unhindered(on(lambda other: other.dequeue(2, lease=SECOND)))
        waits.unhindered(on(lambda other: other.hear()))
    holder.rollback()
    assert unbalanced(kernel) == []
    clock.advance(timedelta(hours=2))
    assert len(kernel.dequeue(100).hands) == kernel.value("select count(*) from fq_message") == 8


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
