"""What the state of a queue's dispatcher says holds, whoever wrote it, and whatever happened since."""

from datetime import timedelta

import pytest

from tests.fixtures.clock import install_clock
from tests.fixtures.database import Database
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel, policy_json
from tests.sql.kernel.verbs import limit


@pytest.mark.parametrize("polls", [0, 1], ids=["at once", "after a poll that found nothing"])
def test_what_an_open_transaction_signalled_lies_below_no_floor(
    kernel: Kernel, open_kernel: OpenKernel, polls: int
) -> None:
    """A transaction with the newest id of all, and a signal below one that was heard, commits late: its message is
    found at once.
    """
    kernel.enqueue("a", "b")
    call = kernel.dequeue(7, lease=2 * HOUR)
    kernel.complete(*call.hands)
    older, newer = open_kernel(), open_kernel()
    older.rows("select pg_current_xact_id()")
    (late,) = newer.enqueue("a")
    for _ in range(polls):
        # Under a lease that is alive, as a worker that holds messages does.
        call = kernel.dequeue(7, lease=HOUR, lease_id=call.lease_id)
    (early,) = older.enqueue("b")
    older.commit()
    found = []
    for _ in range(3):
        call = kernel.dequeue(7, lease=HOUR, lease_id=call.lease_id)
        found += call.ids
    newer.commit()
    call = kernel.dequeue(7, lease=HOUR, lease_id=call.lease_id)
    assert [*found, *call.ids] == [early.message_id, late.message_id]


@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize("limited", ["no", "channel", "queue"])
def test_whether_slots_are_held_is_told(kernel: Kernel, size: int, limited: str) -> None:
    """holds_slots is true where the end of what was taken frees a slot, whichever way it was taken."""
    kernel.enqueue("a", "b", "c", "c", "c", "c")
    if limited == "channel":
        kernel.configure("c", max_concurrency=2)
    elif limited == "queue":
        limit(kernel, 5)
    told = []
    while (call := kernel.dequeue(size)).hands:
        held = kernel.value("select count(*) from fq_message where id = any(%(ids)s) and slots > 0", ids=call.ids)
        assert call.holds_slots >= (held > 0)
        told.append(call.holds_slots)
    assert any(told) == (limited != "no")


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


def test_a_channel_in_other_hands_is_not_forgotten_for_one_that_is_taken(
    kernel: Kernel, open_kernel: OpenKernel
) -> None:
    """What stands first and is locked stays the floor, and is polled again at once."""
    kernel.enqueue("a", "a")
    kernel.enqueue("b")
    kernel.ready()
    kernel.rows("select fq_open_queue('q')")
    holder = open_kernel()
    holder.rows(
        "select from fq_channel_state where channel_id = (select id from fq_channel where name = 'a') for update"
    )
    call = kernel.dequeue(4)
    assert call.channels == ["b"]
    assert call.due_in == 0
    holder.rollback()
    assert kernel.dequeue(4).channels == ["a", "a"]


def test_more_locked_channels_than_a_call_hears_of_are_no_busy_loop(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """While all that a call hears of is locked, the next one is due later; once it is not, all is delivered."""
    names = [f"c{number}" for number in range(1_100)]
    kernel.enqueue(*names)
    while hands := kernel.dequeue(1_000).hands:
        kernel.complete(*hands)
    bystander = open_kernel()
    bystander.rows("select from fq_channel_state for update")
    kernel.enqueue(*names)
    for _ in range(3):
        call = kernel.dequeue(1_000)
        assert (call.hands, call.is_held, (call.due_in or 0) >= 10_000) == ([], True, True)
    bystander.rollback()
    assert sum(len(kernel.dequeue(1_000).hands) for _ in range(3)) == len(names)


def test_a_channel_that_becomes_ready_while_the_only_one_stands_still_is_served(
    database: Database, kernel: Kernel
) -> None:
    """It starts behind the floor, also where no other ready channel says at which place."""
    clock = install_clock(database)
    limit(kernel, 3)
    kernel.enqueue("a")
    kernel.complete(*kernel.dequeue().hands)
    kernel.enqueue(*"bbbbb")
    held = kernel.dequeue(10).hands
    assert len(held) == 3
    clock.advance(timedelta(seconds=1))
    # The queue is full: "b" stays first, and stands still.
    assert kernel.dequeue(10).hands == []
    clock.advance(timedelta(seconds=2))
    kernel.complete(*held)
    kernel.enqueue("a")
    assert sorted(kernel.dequeue(10).channels) == ["a", "b", "b"]


def test_a_call_that_began_before_the_last_one_that_attended_places_nothing_below_the_floor(
    database: Database, kernel: Kernel, open_kernel: OpenKernel
) -> None:
    """By its clock a channel is due again before the time that was noted, and is found all the same."""
    clock = install_clock(database)
    limit(kernel, 5)
    kernel.enqueue("a")
    kernel.hear()
    bystander = open_kernel()
    bystander.rows("select from fq_channel_state for update")
    later = timedelta(seconds=0.5)
    for name, step in (("b", timedelta()), ("c", later)):
        clock.advance(step)
        kernel.enqueue(name)
        kernel.complete(*kernel.dequeue(10).hands)
        kernel.hear()
    bystander.rollback()
    clock.advance(-later)
    bystander.rows("select from fq_message for update")
    assert kernel.dequeue().hands == []
    bystander.rollback()
    clock.advance(timedelta(milliseconds=20))
    assert kernel.dequeue().channels == ["a"]


@pytest.mark.parametrize("most", [None, 1], ids=["no limit", "the queue's limit"])
def test_an_expired_lease_whose_messages_are_being_ended_is_no_busy_loop(
    database: Database, kernel: Kernel, open_kernel: OpenKernel, most: int | None
) -> None:
    """While a transaction that ends them is open, the next call is due later, and later still."""
    clock = install_clock(database)
    limit(kernel, most)
    kernel.enqueue("a")
    hands = kernel.dequeue(lease=SECOND).hands
    ending = open_kernel()
    ending.complete(*hands)
    clock.advance(timedelta(seconds=2))
    first = kernel.dequeue()
    clock.advance(timedelta(seconds=2))
    second = kernel.dequeue()
    assert [(call.hands, call.is_held, call.due_in or 0) for call in (first, second)] == [
        ([], True, 10_000),
        ([], True, SECOND),
    ]
    ending.rollback()
    assert len(kernel.dequeue().hands) == 1


def test_after_a_crash_a_lease_is_new(kernel: Kernel) -> None:
    """The epoch is gone, as after a crash, or came out of a dump: nothing is taken under a lease of before."""
    kernel.enqueue(*"abcde")
    leases = [kernel.dequeue(lease=2 * HOUR).lease_id]
    for end in ("truncate fq_epoch", "update fq_epoch set value = 1, written_by = '3'"):
        kernel.rows(end)
        call = kernel.dequeue(lease=HOUR, lease_id=leases[-1])
        assert len(call.hands) == 1
        assert kernel.dequeue(lease=HOUR, lease_id=call.lease_id).lease_id == call.lease_id
        leases.append(call.lease_id)
    assert len(set(leases)) == 3


def test_a_state_that_came_out_of_a_dump_hides_no_signal(kernel: Kernel) -> None:
    """It names a transaction that this server has not come to yet: all signals count as new."""
    kernel.enqueue("a")
    kernel.complete(*kernel.dequeue().hands)
    kernel.rows("update fq_queue_state set heard_below = '4000000000'")
    for _ in range(3):
        kernel.enqueue("a")
        assert kernel.dequeue().channels == ["a"]
    assert kernel.value("select heard_below::text::bigint < 4000000000 from fq_queue_state")


def test_a_lease_that_was_made_after_the_clock_fell_back_ends(
    database: Database, kernel: Kernel, open_kernel: OpenKernel
) -> None:
    """What was noted by the clock of before hides no lease that expires by the clock of after."""
    clock = install_clock(database)
    kernel.enqueue("a", "a")
    clock.advance(timedelta(hours=1))
    kernel.complete(*kernel.dequeue().hands)
    kernel.hear()
    clock.advance(-timedelta(hours=1))
    attending = open_kernel()
    attending.rows("select from fq_queue_state for no key update")
    (held,) = kernel.dequeue(lease=SECOND).hands
    attending.rollback()
    clock.advance(timedelta(seconds=2))
    assert kernel.dequeue().ids == [held.id]


def test_a_dequeue_that_stays_open_stops_no_other_but_hearing(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Others take what is ready meanwhile, and hear what came as soon as it has ended."""
    kernel.enqueue(*"aabb")
    kernel.ready()
    frozen = open_kernel()
    kernel.enqueue("d")
    assert frozen.dequeue().channels == ["a"]
    kernel.enqueue("c")
    assert kernel.dequeue(10).channels == ["b"]
    assert kernel.dequeue(10).channels == ["b"]
    call = kernel.dequeue(10)
    assert (call.hands, call.is_held) == ([], True)
    frozen.rollback()
    assert sorted(kernel.dequeue(10).channels) == ["a", "a", "c", "d"]


def test_virtual_time_begins_again(kernel: Kernel) -> None:
    """Near the end of its numbers all tags are moved back, and who waits, is full or paused does so still."""
    for channel, policy in {"busy": {}, "full": {"max_concurrency": 1}, "slow": {"rate_interval": HOUR}}.items():
        kernel.rows("select fq_configure_channel('q', %(name)s, %(it)s)", name=channel, it=policy_json(**policy))
    kernel.enqueue("busy", "full", "slow", "paused", "idle")
    assert len(kernel.dequeue(9, lease=10 * HOUR).hands) == 5
    kernel.enqueue(*["busy"] * 3, "full", "slow", "paused")
    kernel.rows("select fq_pause('q', 'paused')")
    kernel.ready()
    for table, column in (
        ("fq_channel_state", "tag"),
        ("fq_channel_state", "ready_tag"),
        ("fq_queue_state", "ready_floor"),
    ):
        moved = f"row_version = row_version + 1, {column} = {column} + 8000000000000100000"
        kernel.rows(f"update {table} set {moved} where queue = 'q'")
    kernel.enqueue("busy")

    assert [kernel.dequeue().channels for _ in range(5)] == [["busy"]] * 4 + [[]]
    assert kernel.value("select max(tag) < -8e18 from fq_channel_state where queue = 'q'")
