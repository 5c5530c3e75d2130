"""Waits for pauses, limits, bounds and the history, each with every verb, one of the two in an open transaction."""

from itertools import product

import pytest

from tests.fixtures.waits import Waits
from tests.sql import test_locks_waiting as before
from tests.sql.client import Kernel, OpenKernel, on
from tests.sql.kernel.verbs import bound, limit, pause, resume

NEW: dict[str, before.Verb] = {
    "pause": lambda kernel, _: pause(kernel, "a"),
    "resume": lambda kernel, _: resume(kernel, "a"),
    "bound": lambda kernel, _: bound(kernel, "a", 5),
    "pause_queue": lambda kernel, _: pause(kernel),
    "resume_queue": lambda kernel, _: resume(kernel),
    "limit": lambda kernel, _: limit(kernel, 5),
    "unlimit": lambda kernel, _: limit(kernel, None),
    "record": lambda kernel, _: kernel.set_queue(history=True),
}
VERBS = before.VERBS | NEW
SETTLING = {"complete", "release", "retry", "bury"}
# What takes the state row of channel a; what takes the queue's row. To resume a queue that is not paused takes none.
CHANNEL = {"pause", "resume", "bound", "configure"}
QUEUE = {"pause_queue", "limit", "unlimit", "record", "configure_queue"}

# The second waits for the open first. Every other pair passes at once.
WAITING = {
    *product(CHANNEL | {"dequeue", "hear"}, CHANNEL),
    *product(QUEUE, QUEUE),
    # a limit counts the messages that are out, and a dequeue under way is taking some
    *product(SETTLING | {"dequeue"}, {"limit"}),
    *product({"dequeue", "hear"}, {"unlimit"}),
    ("hear", "limit"),
    *product({"limit"}, SETTLING),
    # the first limit has the channels, from which nothing may be taken
    *product(CHANNEL, {"limit", "unlimit"}),
    *product({"limit", "unlimit"}, CHANNEL),
}

PAIRS = sorted(set(product(VERBS, NEW)) | set(product(NEW, VERBS)))


@pytest.mark.parametrize("first", VERBS)
def test_only_the_named_verbs_wait(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, first: str) -> None:
    """While one verb is in an open transaction, each other verb passes at once, except those that are named to wait."""
    hands = before._stage(kernel)
    holder = open_kernel()
    VERBS[first](holder, hands)
    for second in [second for one, second in PAIRS if one == first and (one, second) not in WAITING]:
        if (first, second) != ("dequeue", "cancel"):
            waits.unhindered(before._undone(VERBS[second], hands))


@pytest.mark.parametrize(("first", "second"), [pair for pair in PAIRS if pair in WAITING])
def test_the_named_verbs_wait(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, first: str, second: str) -> None:
    """A verb that needs what another holds waits for its transaction and then goes on, without an error."""
    hands = before._stage(kernel)
    holder = open_kernel()
    VERBS[first](holder, hands)
    rival = waits.start(on(lambda rival: VERBS[second](rival, hands))).blocked()
    holder.commit()
    rival.result()
