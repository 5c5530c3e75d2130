"""Traps that a design or an earlier sketch fell into: each of these tests fails without the remedy that its promise
names.
"""

import pytest

from tests.sql.client import MILLISECOND, SECOND, Kernel, OpenKernel


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("lock", ["for update", "for share", "cancel"])
def test_a_locked_message_is_passed_by_and_not_lost(
    kernel: Kernel, open_kernel: OpenKernel, lock: str, end: str
) -> None:
    """The head stays at the least message not taken: one that somebody has locked is passed by, and comes when it is
    free.
    """
    kernel.configure("a", 10)
    ids = [row.message_id for row in kernel.enqueue(*["a"] * 5)]
    holder = open_kernel()
    if lock == "cancel":
        assert holder.cancel(*ids[:2]) == {}
    else:
        holder.rows(f"select from fq_message where id = any (%(ids)s) {lock}", ids=ids[:2])
    assert kernel.dequeue(1).ids == [ids[2]]
    assert kernel.state("a")["head_message_id"] == ids[0]
    assert kernel.dequeue(10).ids == ids[3:]
    getattr(holder, end)()
    left = [] if (lock, end) == ("cancel", "commit") else ids[:2]
    call = kernel.dequeue(10)
    # Where only locked ones were left, the channel is polled again shortly.
    if not call.hands and left:
        kernel.rows("update fq_channel_state set due_at = fq_now()")
        call = kernel.dequeue(10)
    assert call.ids == left
    assert kernel.state("a")["current_concurrency"] == 3 + len(left)


def test_only_locked_messages_are_looked_at_again_shortly(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """A channel with locked messages only is due again in milliseconds, neither at once for ever nor never."""
    kernel.enqueue("a")
    stopped = "create or replace function fq_now() returns bigint language sql volatile as 'select {}::bigint'"
    now: int = kernel.value("select fq_now()")
    kernel.rows(stopped.format(now))
    holder = open_kernel()
    holder.rows("select from fq_message for update")
    call = kernel.dequeue()
    assert call.hands == []
    assert call.due_in is not None
    assert MILLISECOND < call.due_in < SECOND
    holder.rollback()
    kernel.rows(stopped.format(now + call.due_in))
    assert len(kernel.dequeue().hands) == 1


def test_a_signal_stays_while_its_channel_is_being_emptied(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """A signal is dropped only under its channel's lock: a message that comes while another consumer empties the
    channel is found.
    """
    kernel.enqueue("a")
    emptying = open_kernel()
    assert len(emptying.dequeue(10).hands) == 1
    (late,) = kernel.enqueue("a")
    assert kernel.hear() == 0
    assert kernel.dequeue(10).hands == []
    emptying.commit()
    assert kernel.dequeue(10).ids == [late.message_id]


def test_signals_of_a_locked_channel_do_not_fill_the_chunks(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """What is read of a locked channel is put back behind the others: 10,001 signals of one hide none of another
    channel.
    """
    kernel.enqueue("locked")
    kernel.rows(
        "insert into fq_signal (queue, channel_id, dequeue_at, message_id)"
        " select 'q', id, 0, 1 from fq_channel, generate_series(1, 10000)"
    )
    kernel.enqueue("free")
    holder = open_kernel()
    holder.rows("select from fq_channel_state for update")
    kernel.enqueue("free")
    assert kernel.dequeue().channels == []
    holder.rollback()
    holder.rows(
        "select from fq_channel_state where channel_id = (select id from fq_channel where name = 'locked') for update"
    )
    assert kernel.hear() == 2
    assert kernel.dequeue(10).channels == ["free", "free"]
    holder.rollback()
    kernel.hear()
    assert kernel.dequeue(10).channels == ["locked"]


def test_a_past_time_gets_no_earlier_turn(kernel: Kernel) -> None:
    """A time in the past means now: the message stands behind what was there, whatever the year it names."""
    kernel.enqueue(*["a", "b"] * 3)
    late = [
        *kernel.enqueue("a", "a", ats=[1, 2]),
        *kernel.enqueue("a", ats=[-(2**63)]),
        *kernel.enqueue("a", ats=[-5], keys=["k"]),
    ]
    order = [hand.id for hand in kernel.drain(limit=1)]
    assert order[-4:] == [row.message_id for row in late]
