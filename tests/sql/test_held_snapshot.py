"""A snapshot that is held while the queue works keeps all versions of its rows: no call walks over them."""

import pytest

from tests.sql.answers import Hand
from tests.sql.client import Follower, Kernel, OpenKernel, policy_json
from tests.sql.plans import buffers
from tests.worker.helpers import until

pytestmark = pytest.mark.usefixtures("cloned")

_CHANNELS = ("a", "b", "c", "d")
_QUEUES = {
    "plain": [],
    "with bounds": ["""select fq_set_queue('q', '{"defaults": {"max_backlog": 100000}}')"""],
    "with limits": [
        """select fq_configure_limit('shared', '{"max_concurrency": 50000}')""",
        """select fq_set_queue('q', '{"defaults": {"max_concurrency": 1000}}')""",
        """select fq_limit_queue('q', '{"max_concurrency": 50000, "limits": ["shared"]}', false)""",
    ],
}


@pytest.mark.parametrize("queue", _QUEUES)
def test_no_call_walks_over_dead_versions_of_states(kernel: Kernel, open_kernel: OpenKernel, queue: str) -> None:
    """After 600 messages were served under a held snapshot, each call reads at most half as many buffers again, also
    where another consumer has some of the channels, and two calls that hear of a channel meet.
    """
    for sql in _QUEUES[queue]:
        kernel.rows(sql)
    kernel.enqueue(*_CHANNELS)
    consumer, other = Follower(kernel), open_kernel()
    consumer.take(1)

    def hear_beside_another(*channels: str) -> int:
        """What a hearing reads of signals of *channels* where another call has the first two of them."""
        kernel.enqueue(*channels)
        other.rows(
            "select from fq_channel_state where channel_id in (select id from fq_channel where name in ('a', 'b'))"
            " for update"
        )
        read = buffers(kernel, kernel.hear)
        other.rollback()
        consumer.drain()
        return read

    def measure() -> dict[str, int]:
        hands = list[Hand]()
        read = {
            "hear one": hear_beside_another("a"),
            "hear several": hear_beside_another(*_CHANNELS),
            "enqueue one": buffers(kernel, lambda: kernel.enqueue("a")),
            "enqueue many": buffers(kernel, lambda: kernel.enqueue(*_CHANNELS * 2)),
            "dequeue": buffers(kernel, lambda: hands.extend(consumer.take(len(_CHANNELS)))),
        }
        read |= {
            "retry": buffers(kernel, lambda: kernel.retry(hands[0])),
            "release": buffers(kernel, lambda: kernel.release(hands[1])),
            "bury": buffers(kernel, lambda: kernel.bury(hands[2])),
            "complete": buffers(kernel, lambda: kernel.complete(hands[3])),
        }
        consumer.drain()
        changes = policy_json(weight=1)
        return read | {
            "max_backlog": buffers(kernel, lambda: kernel.rows("select fq_refuse('full', 'q', 'a', 1, null, false)")),
            "pause": buffers(kernel, lambda: kernel.rows("select fq_pause('q', 'a'), fq_pause('q', 'a', false)")),
            "configure": buffers(
                kernel, lambda: kernel.rows("select fq_configure_channel('q', 'a', %(changes)s)", changes=changes)
            ),
        }

    def measured() -> dict[str, int]:
        """The least of three, as ``least_buffers``."""
        times = [measure() for _ in range(3)]
        return {call: min(read[call] for read in times) for call in times[0]}

    before = measured()
    open_kernel(isolation="REPEATABLE_READ").value("select count(*) from fq_channel_state")
    for _ in range(150):
        kernel.enqueue(*_CHANNELS)
        consumer.drain()
    dearer: dict[str, tuple[int, int]] = {}

    def is_cheap() -> bool:
        after = measured()
        dearer.clear()
        dearer.update({one: (before[one], after[one]) for one in before if after[one] > 1.5 * before[one] + 16})
        return not dearer

    # A hearing looks for the signals of each transaction that is open on the server, also of those of other tests.
    until(is_cheap, dearer)


def test_a_consumer_that_begins_walks_over_none(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Its first call reads as much after 1,200 messages that were served under a held snapshot as before them."""

    def first_call() -> int:
        kernel.enqueue(*_CHANNELS)
        read = buffers(kernel, kernel.dequeue)
        assert kernel.complete(*kernel.dequeue(4).hands) == {}
        return read

    before = min(first_call() for _ in range(3))
    open_kernel(isolation="REPEATABLE_READ").value("select count(*) from fq_channel_state")
    for _ in range(300):
        kernel.enqueue(*_CHANNELS)
        assert kernel.complete(*kernel.dequeue(4).hands) == {}
    assert min(first_call() for _ in range(3)) <= 1.5 * before + 8
