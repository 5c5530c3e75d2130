"""Each statement of a message's life reaches its rows by index or by ctid, as many as the batch needs.

The plans are those of a fresh install that was never analysed: made in a session that starts while the tables are
empty.
"""

from datetime import timedelta

import pytest

from tests.fixtures.clock import Clock
from tests.sql.client import HOUR, Kernel, OpenKernel
from tests.sql.kernel.verbs import bound
from tests.sql.life.verbs import (
    end_wait,
    enqueue,
    heartbeat,
    keep_history,
    lock_messages,
    purge_channel,
    purge_dead,
    redrive,
    release,
    retry,
    wait,
    wake,
)
from tests.sql.plans import assert_frugal, explained

pytestmark = pytest.mark.usefixtures("cloned")

BATCH = 10
# What a batch may read of one table in one statement, as in tests/sql/test_plans.py.
BOUND = 4 * BATCH


def _warm(kernel: Kernel) -> None:
    """Let every function make its generic plans now, while the tables are as good as empty."""
    kernel.set_queue(history=True)
    keep_history(kernel, 1)
    for _ in range(2):
        bound(kernel, "bounded", 5)
        enqueue(kernel, "first", "first", "bounded")
        enqueue(kernel, "first", "first", keys=["a", "b"])
        enqueue(kernel, "first", "first", keys=["a", "c"], on="replace", notify=True)
        enqueue(kernel, "first", keys=["d"])
        one, two, three, four, *rest = kernel.dequeue(BATCH).hands
        enqueue(kernel, "first", keys=["a"], on="replace", hold=[one.id])
        kernel.cancel(four.id, *kernel.dequeue(0 + 1).ids)
        lock_messages(kernel, one.id)
        release(kernel, one, notify=True)
        retry(kernel, two, four, notify=True)
        kernel.bury(three, *rest[:1])
        kernel.complete(*rest[1:])
        heartbeat(kernel, one.lease_id)
        lease_id, _ = wait(kernel, one.lease_id)
        wake(kernel)
        end_wait(kernel, lease_id)
        redrive(kernel, three.id)
        redrive(kernel)
        purge_channel(kernel, "first")
        kernel.bury(*kernel.dequeue(BATCH).hands)
        purge_dead(kernel, three.id)
        purge_dead(kernel, kind="none")
        kernel.rows("update fq_lease set expires_at = fq_now()")
        kernel.drain()


def _fill(kernel: Kernel, messages: int) -> None:
    """A backlog, a tenth as many dead letters and keys, and waits of another queue."""
    kernel.rows("insert into fq_channel (queue, name) select 'q', 'c' || i from generate_series(1, 2000) i")
    kernel.rows(
        """
        insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts, key)
        select c.id + case when i %% 2 = 0 then 0 else i %% 2000 end, 'work', '{}', i, i, 20,
          case when i %% 10 = 0 then 'k' || i end
        from fq_channel c
        cross join generate_series(1, %(messages)s) i
        where c.name = 'c1'
        """,
        messages=messages,
    )
    kernel.rows(
        "insert into fq_dead_letter (message_id, queue, channel_id, kind, content, enqueued_at, attempts, max_attempts,"
        " deliveries, reason, died_at) select 5000000 + i, 'q', c.id, 'work', '{}', i, 1, 1, 1, 'old', i"
        " from fq_channel c cross join generate_series(1, %(letters)s) i where c.name = 'c2'",
        letters=messages // 10,
    )
    kernel.rows(
        "insert into fq_lease (id, queue, consumer, expires_at, waiting_until)"
        " select i, 'other', 'me', 9000000000000000, 9000000000000000 from generate_series(1, 10000) i"
    )
    kernel.rows(
        "insert into fq_channel_state (channel_id, queue, head_dequeue_at, head_message_id, tag, ready_tag)"
        " select id, 'q', 0, 0, id - 9000000000000000000, id - 9000000000000000000 from fq_channel where name like 'c%'"
    )
    # These channels came without signals, and the state of the queue knows of none that is ready.
    kernel.rows("update fq_queue_state set row_version = row_version + 1, ready_floor = -9223372036854775808")
    kernel.rows(
        "update fq_channel_state s set row_version = row_version + 1, max_backlog = 1000000 from fq_channel c"
        " where c.id = s.channel_id and c.name in ('c5', 'c6')"
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("messages", [100_000, pytest.param(1_000_000, marks=pytest.mark.whole)])
def test_every_verb_is_frugal_on_a_fresh_install_with_many_messages(
    kernel: Kernel, open_kernel: OpenKernel, messages: int
) -> None:
    """With plans made on empty tables and many messages, each verb reads in proportion to its batch."""
    _warm(kernel)
    _fill(open_kernel(autocommit=True), messages)
    half = messages // 2
    names = [f"c{number}" for number in range(1, BATCH + 1)]

    def frugal(work: object) -> None:
        assert callable(work)
        assert_frugal(kernel, BOUND, work)

    frugal(lambda: enqueue(kernel, *names, notify=True))
    frugal(lambda: enqueue(kernel, *names, keys=names))
    frugal(lambda: enqueue(kernel, *names, keys=names, on="replace", hold=range(half, half + BATCH)))
    frugal(lambda: enqueue(kernel, "c7", notify=True))
    frugal(lambda: enqueue(kernel, "c5"))
    frugal(lambda: enqueue(kernel, "c1", keys=["k10"], on="replace"))
    (hands) = kernel.dequeue(3 * BATCH, lease=HOUR).hands
    assert len(hands) == 3 * BATCH
    frugal(lambda: kernel.cancel(*(hand.id for hand in hands[:5]), *range(half + 20_000, half + 20_005)))
    frugal(lambda: heartbeat(kernel, hands[0].lease_id))
    frugal(lambda: lock_messages(kernel, *range(half + 30_000, half + 30_000 + BATCH)))
    frugal(lambda: release(kernel, *hands[2:8], notify=True))
    frugal(lambda: retry(kernel, *hands[8:12], notify=True))
    frugal(lambda: kernel.bury(*hands[:2], *hands[12:16]))
    frugal(lambda: kernel.complete(*hands[16:26]))
    frugal(lambda: kernel.complete(hands[26]))
    frugal(lambda: wait(kernel, hands[0].lease_id))
    frugal(lambda: wake(kernel))
    frugal(lambda: end_wait(kernel, hands[0].lease_id))
    frugal(lambda: redrive(kernel, *range(-BATCH, 0)))
    frugal(lambda: redrive(kernel, limit=BATCH))
    frugal(lambda: purge_dead(kernel, *range(-3 * BATCH, -2 * BATCH)))
    frugal(lambda: purge_dead(kernel, before=5 * BATCH))
    enqueue(kernel, *["small"] * BATCH)
    frugal(lambda: purge_channel(kernel, "small"))
    kernel.rows("update fq_lease set expires_at = fq_now() where queue = 'q'")
    frugal(lambda: kernel.dequeue(BATCH))


def test_waits_are_not_read_unless_told(kernel: Kernel) -> None:
    """Without p_notify no enqueue, release or retry looks at the leases."""
    enqueue(kernel, "a", "a")
    hands = kernel.dequeue(2).hands
    with explained(kernel) as scans:
        enqueue(kernel, "a")
        enqueue(kernel, "a", "b")
        enqueue(kernel, "a", keys=["k"], on="replace")
        release(kernel, hands[0])
        retry(kernel, hands[1])
    assert "fq_lease" not in {scan.table for scan in scans}


def test_marks_that_an_old_snapshot_keeps_are_passed_over(
    kernel: Kernel, open_kernel: OpenKernel, clock: Clock
) -> None:
    """Under an open snapshot, finding who waits reads none of the waits that are over, however many are kept."""
    lease_id, _ = wait(kernel, wait=24 * HOUR)
    end_wait(kernel, lease_id)
    snapshot = open_kernel(isolation="REPEATABLE_READ")
    snapshot.value("select count(*) from fq_lease")
    for _ in range(100):
        wait(kernel, lease_id, 1)
        end_wait(kernel, lease_id)
    clock.advance(timedelta(days=1))
    producer = open_kernel()
    assert not wake(producer)
    assert producer.value("select pg_stat_get_xact_tuples_returned('fq_lease_waiting_ix'::regclass)") == 0
    wait(kernel, None, HOUR)
    assert wake(producer)
    assert producer.value("select pg_stat_get_xact_tuples_returned('fq_lease_waiting_ix'::regclass)") == 1


def test_history_off_reads_nothing_more(kernel: Kernel) -> None:
    """Where the queue does not record, completing, releasing, retrying and burying reach the messages and channels."""
    kernel.enqueue(*["a"] * 8)
    hands = kernel.dequeue(8).hands
    with explained(kernel) as scans:
        kernel.complete(hands[0])
        kernel.complete(*hands[1:3])
        kernel.release(*hands[3:5])
        kernel.retry(*hands[5:7])
        kernel.bury(hands[7])
    reads = {(scan.table, scan.node) for scan in scans}
    # A letter looks for the note that its message has left if that was a member of a group, and whether it is followed.
    letters = {("fq_group_note", "Index Scan"), ("fq_queue", "Index Scan")}
    assert reads == {("fq_message", "Tid Scan"), ("fq_channel", "Index Scan"), *letters}


def test_signals_that_an_old_snapshot_keeps_are_passed_over(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Under an open snapshot, an enqueue to a bounded channel reads none of the signals that were heard."""
    bound(kernel, "a", 1_000)
    snapshot = open_kernel(isolation="REPEATABLE_READ")
    snapshot.value("select count(*) from fq_signal")
    for _ in range(100):
        enqueue(kernel, "a")
    kernel.hear()
    producer = open_kernel()
    enqueue(producer, "a")
    assert producer.value("select pg_stat_get_xact_tuples_returned('fq_signal_bounded_ix'::regclass)") == 0
    kernel.drain()
