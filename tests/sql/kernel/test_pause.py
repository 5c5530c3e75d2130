"""fq_pause: nothing is delivered meanwhile, nothing is lost, and everything goes on where it stood."""

from functools import partial

import pytest

from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel, on
from tests.sql.kernel.verbs import pause, resume

pytestmark = pytest.mark.usefixtures("balanced")


def test_a_paused_channel_keeps_all_of_its_state(kernel: Kernel) -> None:
    """Limit, rate, count, tag, head and backlog are after a pause what they were before."""
    kernel.configure("a", 5, interval=HOUR, burst=9, weight=4)
    kernel.enqueue(*"aaaaaa")
    kernel.dequeue(1)
    kernel.enqueue("a")
    before = kernel.state("a")
    pause(kernel, "a")
    kernel.dequeue(10)
    resume(kernel, "a")
    after = kernel.state("a")
    changed = {name for name, value in before.items() if after[name] != value}
    # what was enqueued before the pause and heard during it
    assert changed <= {"row_version", "backlog", "heard_id", "ready_tag", "due_at"}


def test_a_resumed_channel_stands_where_its_last_service_puts_it(kernel: Kernel) -> None:
    """Nobody gains a turn or loses more than those of the pause: who was served before it comes before it."""
    kernel.enqueue(*"abc" * 9)
    assert [kernel.dequeue().channels for _ in range(3)] == [["a"], ["b"], ["c"]]
    pause(kernel, "b")
    assert [kernel.dequeue().channels for _ in range(3)] == [["a"], ["c"], ["a"]]
    resume(kernel, "b")
    assert [kernel.dequeue().channels for _ in range(6)] == [["c"], ["b"], ["a"], ["c"], ["b"], ["a"]]


def test_a_resumed_channel_keeps_its_rate_and_its_schedule(kernel: Kernel) -> None:
    """A pause brings nothing sooner than the rate or the message's time allows."""
    kernel.configure("a", interval=HOUR)
    kernel.enqueue("a", "a", "late", delays=[None, None, HOUR])
    kernel.complete(*kernel.dequeue(10, lease=10 * HOUR).hands)
    for channel in ("a", "late"):
        pause(kernel, channel)
        resume(kernel, channel)
    call = kernel.dequeue(10, lease=10 * HOUR)
    assert call.hands == []
    assert call.due_in is not None
    assert HOUR - 60 * SECOND < call.due_in <= HOUR


@pytest.mark.parametrize("hearing", ["dequeue", "hear"])
@pytest.mark.parametrize("how", ["resume", "raise"])
def test_what_can_be_served_again_is_served_in_its_turn(kernel: Kernel, how: str, hearing: str) -> None:
    """A channel that is resumed, or whose limit is raised, is served in its turn, though others were served since
    and it stood before them.
    """
    kernel.configure("a", 1)
    kernel.enqueue(*"ab" * 9)
    kernel.dequeue()
    if how == "resume":
        kernel.configure("a", 9)
        pause(kernel, "a")
    for _ in range(4):
        assert kernel.dequeue().channels == ["b"]
    if how == "resume":
        resume(kernel, "a")
    else:
        kernel.configure("a", 2)
    if hearing == "hear":
        kernel.hear()
    assert "a" in {kernel.dequeue().channels[0] for _ in range(2)}


def test_pausing_a_queue_sets_no_policy(kernel: Kernel) -> None:
    """Channels of a queue that was only paused start with the policy that their first enqueue brings."""
    pause(kernel)
    kernel.enqueue("a", policy={"max_concurrency": 3, "weight": 5})
    assert (kernel.state("a")["max_concurrency"], kernel.state("a")["weight"]) == (3, 5)
    kernel.configure_queue(2)
    kernel.enqueue("b", policy={"max_concurrency": 3, "weight": 5})
    assert (kernel.state("b")["max_concurrency"], kernel.state("b")["weight"]) == (2, 1)
    assert kernel.value("select paused_at from fq_queue") is not None


@pytest.mark.parametrize("verb", [pause, resume])
def test_an_open_pause_of_a_channel_stops_that_channel_only(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, verb: "partial[bool]"
) -> None:
    """Until it commits the channel is passed by, the others are served, and nobody waits for it."""
    kernel.enqueue("a", "b")
    if verb is resume:
        pause(kernel, "a")
    admin = open_kernel()
    assert verb(admin, "a")
    assert waits.unhindered(on(lambda consumer: consumer.dequeue(10).channels)) == ["b"]
    waits.unhindered(on(lambda producer: producer.enqueue("a", "a")))
    admin.rollback()
    assert kernel.dequeue(10).channels == ([] if verb is resume else ["a"] * 3)


@pytest.mark.parametrize("verb", [pause, resume])
def test_an_open_pause_of_a_queue_hinders_nobody(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, verb: "partial[bool]"
) -> None:
    """Until it commits the queue is served, or not, as before."""
    kernel.enqueue("a")
    kernel.hear()
    if verb is resume:
        pause(kernel)
    admin = open_kernel()
    verb(admin)
    assert waits.unhindered(on(lambda consumer: len(consumer.dequeue(10).hands))) == (verb is pause)
    waits.unhindered(on(lambda producer: producer.enqueue("a", "new")))
    admin.commit()
    assert len(kernel.dequeue(10).hands) == (3 if verb is resume else 0)


def test_pausing_a_channel_waits_for_a_call_that_serves_it(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits
) -> None:
    """When the pause has committed, every message that is out is known to be out."""
    kernel.enqueue("a", "a")
    consumer = open_kernel()
    consumer.dequeue()
    rival = waits.start(on(partial(pause, channel="a"))).blocked()
    consumer.commit()
    assert rival.result()
    assert kernel.dequeue().hands == []
    assert kernel.value("select count(*) from fq_message where lease_id is not null") == 1


@pytest.mark.parametrize("channel", [None, "a"])
def test_resuming_wakes_waiting_consumers_unless_told_not_to(
    kernel: Kernel, open_kernel: OpenKernel, channel: str | None
) -> None:
    """A consumer that waits is notified, and a transaction that must not notify can be prepared."""
    kernel.enqueue("a")
    kernel.hear()
    (registered,) = kernel.rows("select * from fq_wait('q', 'waiter', null, %(us)s)", us=HOUR)
    admin = open_kernel()
    pause(kernel, channel)
    resume(admin, channel, notify=False)
    admin.rows("prepare transaction 'resumed'")
    admin.rollback()
    kernel.rows("commit prepared 'resumed'")
    waiter = open_kernel(autocommit=True)
    waiter.rows("listen fairqueue")
    pause(kernel, channel)
    resume(kernel, channel)
    heard = list(waiter.connection.notifies(timeout=20, stop_after=1))
    assert [(one.channel, one.payload) for one in heard] == [
        ("fairqueue", f"{registered['lease_id']}:{registered['topic']}")
    ]
