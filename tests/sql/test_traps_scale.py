"""Traps that only large numbers show; what is bounded is rows touched, not time."""

import pytest

from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel
from tests.sql.plans import assert_frugal, least_buffers

pytestmark = pytest.mark.usefixtures("cloned")

A_FEW = 40


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.whole)])
def test_many_messages_in_one_channel(kernel: Kernel, open_kernel: OpenKernel, count: int) -> None:
    """At batch 1 each call starts at the channel's head: it reads a few rows, the first time and after hundreds of
    others.

    The planner settings are pinned, too: with seq scans, hash joins or jit a call would read or compile far more.
    """
    for _ in range(2):
        kernel.enqueue("a")
        kernel.drain()
    open_kernel(autocommit=True).rows(
        "insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
        " select (select id from fq_channel), 'work', '', i, i, 20 from generate_series(1, %(count)s) i",
        count=count,
    )
    kernel.rows(
        "insert into fq_signal (queue, channel_id, dequeue_at, message_id)"
        " select 'q', channel_id, dequeue_at, id from fq_message order by id limit 1"
    )
    for _ in range(300):
        call = kernel.dequeue()
        assert kernel.complete(*call.hands) == {}
    assert_frugal(kernel, A_FEW, lambda: kernel.complete(*kernel.dequeue().hands))


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.whole)])
def test_many_signals_do_not_stand_before_one(kernel: Kernel, count: int) -> None:
    """Signals are coalesced by channel and heard in chunks: after a million of a big tenant the small one's is heard,
    and it is next.

    Delivered one by one, its message would come after a million others.
    """
    kernel.enqueue("big")
    kernel.rows(
        "insert into fq_signal (queue, channel_id, dequeue_at, message_id)"
        " select 'q', (select id from fq_channel), i, i from generate_series(1, %(count)s) i",
        count=count,
    )
    kernel.enqueue("small")
    assert kernel.hear() == count + 2
    assert kernel.value("select count(*) from fq_signal") == 0
    assert "small" in kernel.dequeue(2).channels


def test_an_open_snapshot_does_not_make_calls_dearer(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Under a snapshot that keeps every old version, a call starts where the ready order begins.

    Without a floor each call would walk the versions of all calls before: thousands of index entries instead of a few.
    """
    _age(kernel, open_kernel(isolation="REPEATABLE_READ"), left=300)
    before = _entries_read(kernel)
    for _ in range(20):
        assert len(kernel.dequeue().hands) == 1
    assert _entries_read(kernel) - before <= 20 * A_FEW


@pytest.mark.parametrize("locked", [False, True], ids=["is empty", "is in other hands"])
def test_an_open_snapshot_does_not_make_the_end_of_the_line_dearer(
    kernel: Kernel, open_kernel: OpenKernel, *, locked: bool
) -> None:
    """A call that gets less than it asks for searches what is next from where the order begins, also when all that is
    left is locked.
    """
    _age(kernel, open_kernel(isolation="REPEATABLE_READ"))
    before = _entries_read(kernel)
    for _ in range(20):
        kernel.enqueue("a")
        other = open_kernel()
        if locked:
            kernel.hear()
            other.rows("select from fq_channel_state for update")
        call = kernel.dequeue(50)
        assert len(call.hands) == (not locked)
        assert call.due_in is not None
        other.rollback()
        if locked:
            call = kernel.dequeue(50)
            assert len(call.hands) == 1
        assert kernel.complete(*call.hands) == {}
    assert _entries_read(kernel) - before <= 20 * 3 * A_FEW


def test_dead_leases_do_not_make_an_empty_dequeue_dearer(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Under a snapshot that keeps 200,000 ended leases an empty dequeue reads fewer than 100 buffers, but for the one
    in a tenth of a second that looks at all leases.
    """

    def soon_after_the_look_at_all() -> None:
        kernel.rows("update fq_queue_state set swept_at = fq_now()")
        kernel.dequeue(10)

    kernel.enqueue("a")
    kernel.complete(*kernel.dequeue().hands)
    kernel.rows(
        "insert into fq_lease (id, queue, consumer, expires_at)"
        " select i, 'q', 'me', fq_now() - 3600000000 + i from generate_series(1, 200000) i"
    )
    reader = open_kernel(isolation="REPEATABLE_READ")
    reader.value("select count(*) from fq_lease")
    kernel.rows("delete from fq_lease where expires_at < fq_now()")
    kernel.enqueue("a")
    kernel.complete(*kernel.dequeue().hands)
    kernel.enqueue("a")
    kernel.complete(*kernel.dequeue(10).hands)
    assert least_buffers(kernel, soon_after_the_look_at_all) < 100
    reader.rollback()


@pytest.mark.parametrize("late", [SECOND, HOUR], ids=["a second", "an hour"])
def test_a_lease_that_was_committed_after_its_end_is_found(kernel: Kernel, late: int) -> None:
    """A lease whose transaction took longer than the lease is found at once, or a tenth of a second later."""
    kernel.enqueue("a")
    (taken,) = kernel.dequeue(lease=HOUR).hands
    kernel.dequeue()
    kernel.rows("update fq_lease set expires_at = fq_now() - %(late)s", late=late)
    if late == HOUR:
        kernel.rows("update fq_queue_state set swept_at = swept_at - %(later)s", later=SECOND)
    assert kernel.dequeue().ids == [taken.id]


def _age(kernel: Kernel, reader: Kernel, *, left: int = 0) -> None:
    """Serve 450 messages of three channels one by one while the reader's snapshot keeps every version of their rows.
    So many messages more are left ready.
    """
    kernel.enqueue(*["a", "b", "c"] * (150 + left // 3))
    kernel.hear()
    reader.value("select count(*) from fq_message")
    for _ in range(450):
        assert kernel.complete(*kernel.dequeue().hands) == {}


def _entries_read(kernel: Kernel) -> int:
    kernel.rows("select pg_stat_force_next_flush()")
    total: int = kernel.value(
        "select sum(idx_tup_read)::bigint from pg_stat_user_indexes where indexrelname like 'fq_%'"
    )
    return total
