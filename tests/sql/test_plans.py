"""Each statement of each verb reaches its rows by index or by ctid, as many as the batch needs, whatever lies in the
tables.

The plans are those of a fresh install that was never analysed: made in a session that starts while the tables are
empty.
"""

from functools import partial

import pytest

from tests.sql.client import HOUR, Kernel, OpenKernel
from tests.sql.plans import assert_frugal, explained

pytestmark = pytest.mark.usefixtures("cloned")

BATCH = 10
# What a batch may read of one table in one statement: its channels or messages, one more a channel, and what was left
# behind by the call before.
BOUND = 4 * BATCH


def _warm(kernel: Kernel) -> None:
    """Let every function make its generic plans now, while the tables are as good as empty."""
    for _ in range(2):
        kernel.configure("first")
        kernel.enqueue("first", "first", "first", keys=[None, "a", "b"])
        kernel.cancel(kernel.enqueue("first")[0].message_id)
        kernel.hear()
        kernel.enqueue("first", "first")
        one, two, three, *rest = kernel.dequeue(BATCH).hands
        kernel.release(one)
        kernel.retry(two)
        kernel.bury(three)
        kernel.extend(one.lease_id, HOUR, *rest)
        kernel.complete(*rest)
        kernel.rows("update fq_lease set expires_at = fq_now()")
        kernel.drain()


def _fill(kernel: Kernel, messages: int, channels: int) -> None:
    """A backlog that was enqueued long ago, put in by the shortest way: half in the first channel, the rest spread over
    the others.
    """
    kernel.rows(
        "insert into fq_channel (queue, name) select 'q', 'c' || i from generate_series(1, %(n)s) i", n=channels
    )
    kernel.rows(
        """
        insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)
        select c.id + case when i %% 2 = 0 then 0 else i %% %(channels)s end, 'work', '{}', i, i, 20
        from fq_channel c
        cross join generate_series(1, %(messages)s) i
        where c.name = 'c1'
        """,
        messages=messages,
        channels=channels,
    )
    kernel.rows("update fq_queue_state set ready_floor = '-9223372036854775808', ready_channel = 0")
    # A head is a lower bound: zero will do.
    kernel.rows(
        "insert into fq_channel_state (channel_id, queue, head_dequeue_at, head_message_id, tag, ready_tag)"
        " select id, 'q', 0, 0, id - 9000000000000000000, id - 9000000000000000000 from fq_channel where name like 'c%'"
    )


@pytest.mark.parametrize("messages", [40_000, pytest.param(1_000_000, marks=pytest.mark.whole)])
def test_every_verb_is_frugal_on_a_fresh_install_with_many_messages(
    kernel: Kernel, open_kernel: OpenKernel, messages: int
) -> None:
    """With plans made on empty tables and many messages in 2,000 channels, each verb reads in proportion to its batch.

    Without the pinned planner settings and the look-ups that cannot be turned round, a plan of the empty tables reads
    them whole.
    """
    _warm(kernel)
    _fill(open_kernel(autocommit=True), messages, 2_000)
    names = [f"c{number}" for number in range(1, BATCH + 1)]
    assert_frugal(kernel, BOUND, lambda: kernel.enqueue(*names))
    assert_frugal(kernel, BOUND, lambda: kernel.enqueue(*names, keys=names))
    assert_frugal(kernel, BOUND, lambda: kernel.enqueue("new"))
    assert_frugal(kernel, BOUND, kernel.hear)
    batches = []
    for limit in (1, BATCH):
        assert_frugal(kernel, BOUND, lambda: batches.append(kernel.dequeue(limit, lease=HOUR)))  # noqa: B023 - called at once
    hands = batches[1].hands
    assert len(hands) == BATCH
    assert_frugal(kernel, BOUND, lambda: kernel.dequeue(BATCH, lease_id=hands[0].lease_id))
    assert_frugal(kernel, BOUND, lambda: kernel.extend(hands[0].lease_id, HOUR, *hands))
    assert_frugal(kernel, BOUND, lambda: kernel.release(*hands[:3]))
    assert_frugal(kernel, BOUND, lambda: kernel.retry(*hands[3:5]))
    assert_frugal(kernel, BOUND, lambda: kernel.bury(*hands[5:7]))
    assert_frugal(kernel, BOUND, lambda: kernel.complete(*hands[7:]))
    assert_frugal(kernel, BOUND, lambda: kernel.cancel(*range(messages // 2, messages // 2 + BATCH)))
    assert_frugal(kernel, BOUND, lambda: kernel.configure("c1", 5))
    kernel.rows("update fq_lease set expires_at = fq_now()")
    assert_frugal(kernel, BOUND, lambda: kernel.dequeue(BATCH))


def test_many_ready_channels_cost_no_more_than_a_few(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """A dequeue reads as many channels as its batch needs, however many are ready."""
    _warm(kernel)
    _fill(open_kernel(autocommit=True), 40_000, 20_000)
    for limit in 1, BATCH, 1, BATCH:
        assert_frugal(kernel, BOUND, partial(kernel.dequeue, limit))


def test_settling_by_place_reads_no_index_of_messages(kernel: Kernel) -> None:
    """A delivery whose row has not moved is settled by its ctid: under SERIALIZABLE that avoids false conflicts. Its
    channel, which never changes, says of which queue it is.
    """
    kernel.enqueue(*["a"] * 12)
    hands = kernel.dequeue(12).hands
    with explained(kernel) as scans:
        kernel.complete(*hands[:3])
        kernel.release(*hands[3:6])
        kernel.retry(*hands[6:9])
        kernel.bury(*hands[9:])
    reads = {(scan.table, scan.node) for scan in scans}
    # A letter looks for the note that its message has left if that was a member of a group, and whether it is followed.
    letters = {("fq_group_note", "Index Scan"), ("fq_queue", "Index Scan")}
    assert reads == {("fq_message", "Tid Scan"), ("fq_channel", "Index Scan"), *letters}


def test_reclaim_reads_expired_leases_only(kernel: Kernel) -> None:
    """Among a thousand live leases, reclaiming one reads the expired one and its messages."""
    _warm(kernel)
    kernel.rows(
        "insert into fq_lease (id, queue, consumer, expires_at)"
        " select i, 'q', 'other', fq_now() + 3600000000 from generate_series(1, 1000) i"
    )
    kernel.rows(
        "insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts, lease_id)"
        " select 1, 'work', '', 0, 0, 20, 1 + i % 1000 from generate_series(1, 10000) i"
    )
    kernel.rows("update fq_lease set expires_at = fq_now() where id = 7")
    assert_frugal(kernel, BOUND, lambda: kernel.rows("select fq_reclaim('q', 1000)"))
    assert kernel.value("select count(*) from fq_message where lease_id = 7") == 0
