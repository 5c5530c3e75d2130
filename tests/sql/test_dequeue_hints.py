"""fq_dequeue keeps its promises where a short way, or a hint, rests on less than it seems to."""

import pytest

from sqlalchemy_fairqueue.database import Hint
from tests.fixtures.clock import install_clock
from tests.fixtures.database import Database
from tests.sql.answers import Call
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel
from tests.sql.kernel.verbs import limit


def _hints(kernel: Kernel, call: Call) -> list[int | None]:
    """A call's hints, the next full scan put off."""
    put_off = kernel.value("select fq_now()") + 10 * SECOND
    return [*call.hints[: Hint.FULL_SCAN_AT], put_off, *[None] * 8, *call.hints[Hint.OPEN :]]


@pytest.mark.parametrize("polls", [0, 1], ids=["at once", "after a poll that found nothing"])
def test_what_an_open_transaction_signalled_lies_below_no_floor(
    kernel: Kernel, open_kernel: OpenKernel, polls: int
) -> None:
    """A transaction with the newest id of all, and a signal below one that was heard, commits late: its message is
    found by hints.
    """
    kernel.enqueue("a", "b")
    call = kernel.dequeue(7, lease=2 * HOUR)
    kernel.complete(*call.hands)
    older, newer = open_kernel(), open_kernel()
    older.rows("select pg_current_xact_id()")
    (late,) = newer.enqueue("a")
    for _ in range(polls):
        # Under a lease that is alive, as a worker that holds messages does.
        call = kernel.dequeue(7, lease=HOUR, lease_id=call.lease_id, hints=_hints(kernel, call))
    (early,) = older.enqueue("b")
    older.commit()
    found = []
    for _ in range(3):
        call = kernel.dequeue(7, lease=HOUR, lease_id=call.lease_id, hints=_hints(kernel, call))
        found += call.ids
    newer.commit()
    call = kernel.dequeue(7, lease=HOUR, lease_id=call.lease_id, hints=_hints(kernel, call))
    assert [*found, *call.ids] == [early.message_id, late.message_id]


@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize("limited", ["no", "channel", "queue"])
def test_whether_slots_are_held_is_told(kernel: Kernel, size: int, limited: str) -> None:
    """The seventh hint is 1 where the end of what was taken frees a slot, whichever way it was taken."""
    kernel.enqueue("a", "b", "c", "c", "c", "c")
    if limited == "channel":
        kernel.configure("c", max_concurrency=2)
    elif limited == "queue":
        limit(kernel, 5)
    told = []
    while (call := kernel.dequeue(size)).hands:
        held = kernel.value("select count(*) from fq_message where id = any(%(ids)s) and slots > 0", ids=call.ids)
        assert call.hints[Hint.HOLD_SLOTS] >= (held > 0)
        told.append(call.hints[Hint.HOLD_SLOTS])
    assert any(told) == (limited != "no")


def test_several_channels_below_the_hint_are_taken_in_turn(kernel: Kernel) -> None:
    """Another consumer heard of both: none stands from the hint on, which says nothing about how many stand below."""
    kernel.enqueue(*"aaaa", *"bbbb")
    kernel.hear()
    now = kernel.value("select fq_now()")
    assert kernel.dequeue(4, hints=[now, 0, None, None, now + SECOND]).channels == ["a", "b", "a", "b"]


def test_what_stands_below_the_hint_is_found_by_the_next_full_scan(kernel: Kernel) -> None:
    """A scan below it takes a thirtieth of the time: until then a call that finds nothing says when it is due."""
    kernel.enqueue("a", "b")
    kernel.ready()
    now = kernel.value("select fq_now()")
    call = kernel.dequeue(4, hints=[-1, 0, None, None, now + 10 * SECOND, now + SECOND])
    assert call.channels == []
    assert call.due_in is not None
    assert 0 < call.due_in <= SECOND
    hints = call.hints
    hints[Hint.BELOW_SCAN_AT] = kernel.value("select fq_now()")
    assert kernel.dequeue(4, hints=hints).channels == ["a", "b"]


@pytest.mark.parametrize("full", [True, False])
def test_a_channel_in_other_hands_is_not_forgotten_for_one_that_is_taken(
    kernel: Kernel, open_kernel: OpenKernel, *, full: bool
) -> None:
    """What stands first and is locked stays the hint, and is polled again at once."""
    kernel.enqueue("a", "a")
    kernel.enqueue("b")
    kernel.ready()
    kernel.rows("select fq_make_gate('q')")
    now = kernel.value("select fq_now()")
    first = kernel.value("select min(next_dequeue_at) from fq_channel_state")
    other = open_kernel()
    assert other.dequeue(1).channels == ["a"]
    call = kernel.dequeue(4, hints=None if full else [first, 0, None, None, now + 10 * SECOND, now + 10 * SECOND])
    assert call.channels == ["b"]
    assert call.due_in == 0
    other.rollback()
    assert kernel.dequeue(4, hints=[*call.hints[: Hint.FULL_SCAN_AT], *[now + 10 * SECOND] * 2]).channels == ["a", "a"]


def test_a_hint_ahead_of_the_clock_hides_nothing(kernel: Kernel) -> None:
    """A clock that was set back leaves hints that nothing stands behind."""
    kernel.enqueue("a", "b")
    kernel.hear()
    ahead = kernel.value("select fq_now()") + 20 * SECOND
    assert kernel.dequeue(4, hints=[ahead, 0, None, None, ahead, ahead]).channels == ["a", "b"]


def test_a_channel_heard_of_below_the_hint_is_not_the_only_one(kernel: Kernel) -> None:
    """Its turn order lowers the floor, and another one that was ready below the hint stands behind it."""
    kernel.enqueue("a", "b")
    kernel.drain()
    kernel.enqueue(*"bbbb")
    kernel.hear()
    now = kernel.value("select fq_now()")
    kernel.enqueue(*"aaaa", priorities=[1] * 4)
    assert kernel.dequeue(4, hints=[now, 0, None, None, now + SECOND]).channels == ["a", "b", "a", "b"]


@pytest.mark.parametrize("most", [None, 5], ids=["no limit", "the queue's limit"])
def test_who_looked_in_vain_many_times_is_due_again(
    database: Database, kernel: Kernel, open_kernel: OpenKernel, most: int | None
) -> None:
    """A call ends after 32 passes that found locked messages only: it says that there are some, whatever the queue's
    limit.
    """
    limit(kernel, most)
    kernel.enqueue("a")
    bystander = open_kernel()
    bystander.rows("select from fq_message for update")
    install_clock(database)
    # Each read of the clock takes longer than a channel whose messages were locked is left alone.
    kernel.rows(
        "create or replace function fq_now() returns bigint language sql volatile as $$"
        " select 4000000000000000 + 20000 * nextval('public.test_clock') $$"
    )
    call = kernel.dequeue(10)
    assert call.hands == []
    assert call.due_in is not None


def test_hints_and_lease_of_another_server_are_left_aside(kernel: Kernel) -> None:
    """After a failover nothing lies below the old floors, and what is taken is under a new lease."""
    kernel.enqueue("a")
    before = kernel.dequeue(1, lease=HOUR)
    hints = _hints(kernel, before)
    hints[Hint.SIGNAL_FLOOR] = 2**62
    assert hints[Hint.SERVER] is None
    kernel.enqueue("b")
    assert kernel.dequeue(1, lease=HOUR, lease_id=before.lease_id, hints=hints).ids == []
    hints[Hint.SERVER] = before.hints[Hint.SERVER]
    assert kernel.dequeue(1, lease=HOUR, lease_id=before.lease_id, hints=hints).ids == []
    hints[Hint.SERVER] = 1
    after = kernel.dequeue(1, lease=HOUR, lease_id=before.lease_id, hints=hints)
    assert after.channels == ["b"]
    assert after.lease_id != before.lease_id
    assert after.hints[Hint.SERVER] == before.hints[Hint.SERVER]


def test_the_floor_falls_where_the_ids_of_signals_begin_again(kernel: Kernel) -> None:
    """After a restore into the same database one full scan is enough to find by hints what is signalled then."""
    kernel.enqueue("a")
    kernel.hear()
    call = kernel.dequeue(7, hints=[-1, 2**40, None, None, 0])
    assert call.channels == ["a"]
    assert call.hints[Hint.SIGNAL_FLOOR] == 2**40
    kernel.enqueue("b")
    assert kernel.dequeue(7, hints=_hints(kernel, call)).ids == []
    call = kernel.dequeue(7, hints=[*call.hints[: Hint.FULL_SCAN_AT], 0, *call.hints[Hint.BELOW_SCAN_AT :]])
    assert call.channels == ["b"]
    kernel.enqueue("c")
    assert kernel.dequeue(7, hints=_hints(kernel, call)).channels == ["c"]
