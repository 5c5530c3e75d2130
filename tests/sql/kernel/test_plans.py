"""Pauses, limits, bounds and the history read by index, as much as they need, with plans made on empty tables."""

from collections.abc import Callable

import pytest

from tests.sql.client import Kernel, OpenKernel
from tests.sql.kernel.verbs import bound, limit, pause, resume
from tests.sql.plans import explained

pytestmark = pytest.mark.usefixtures("cloned")

OUT = 5
BOUND = 40
# the first limit of a queue locks all channels with messages
LOCKED = {"fq_channel", "fq_channel_state"}

VERBS: dict[str, Callable[[Kernel], object]] = {
    "pause": lambda kernel: pause(kernel, "c1", new=True),
    "resume": lambda kernel: resume(kernel, "c1"),
    "pause queue": pause,
    "resume queue": resume,
    "record": lambda kernel: kernel.set_queue(history=True),
    "limit": lambda kernel: limit(kernel, 2 * OUT),
    "raise": lambda kernel: limit(kernel, 20 * OUT),
    "dequeue": lambda kernel: kernel.dequeue(),
    "complete": lambda kernel: kernel.complete(*kernel.dequeue(OUT).hands),
    "dequeue more": lambda kernel: kernel.dequeue(10),
    "hear": lambda kernel: kernel.hear(),
    "configure": lambda kernel: kernel.configure("c2", 5),
    "bound": lambda kernel: bound(kernel, "c3", 5),
    "lift": lambda kernel: limit(kernel, None),
}


@pytest.mark.timeout(300)
def test_every_verb_is_frugal_on_a_fresh_install_with_a_backlog(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """With 40,000 messages in 2,000 channels each verb reads in proportion to what it is about."""
    kernel.enqueue("first", "first")
    for _ in range(2):
        for verb in VERBS.values():
            verb(kernel)
    kernel.rows("update fq_lease set expires_at = fq_now()")
    kernel.drain()
    filler = open_kernel(autocommit=True)
    names = [f"c{number}" for number in range(2_000)]
    filler.enqueue(*(name for name in names for _ in range(2)))
    filler.ready()
    filler.rows(
        "insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
        " select c.id, 'work', '{}', 4000000000000000, 0, 20"
        " from fq_channel c cross join generate_series(1, 18) where c.name <> 'c3'"
    )
    kernel.dequeue(OUT, lease=10**12)
    for name, verb in VERBS.items():
        with explained(kernel) as scans:
            verb(kernel)
        wide = [scan for scan in scans if scan.node == "Seq Scan" or scan.rows > BOUND]
        assert [str(scan) for scan in wide if name != "limit" or scan.table not in LOCKED] == []
