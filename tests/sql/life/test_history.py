"""The history: one row an attempt, with the transaction that ends it, where the queue records it."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest

from tests.fixtures.clock import Clock
from tests.sql.answers import Hand
from tests.sql.client import HOUR, SECOND, Kernel, OpenKernel
from tests.sql.life.verbs import history
from tests.sql.plans import assert_frugal

ENDS: dict[str, Callable[[Kernel, Hand], object]] = {
    "completed": lambda kernel, hand: kernel.complete(hand),
    "released": lambda kernel, hand: kernel.release(hand),
    "retried": lambda kernel, hand: kernel.retry(hand, error="boom"),
    "buried": lambda kernel, hand: kernel.bury(hand, reason="poison"),
}


def _recorded(kernel: Kernel, *, max_attempts: int = 20) -> Hand:
    kernel.set_queue(history=True)
    kernel.enqueue("a", kinds=["parse"], max_attempts=[max_attempts])
    (hand,) = kernel.dequeue().hands
    return hand


@pytest.mark.parametrize("outcome", ENDS)
def test_each_end_of_an_attempt_is_one_row(kernel: Kernel, open_kernel: OpenKernel, outcome: str) -> None:
    """Whatever ends an attempt is recorded once, with the message, the channel, the consumer and its times in order;
    of a transaction that rolled back nothing is.
    """
    hand = _recorded(kernel)
    business = open_kernel()
    ENDS[outcome](business, hand)
    assert (len(history(business)), history(kernel)) == (1, [])
    business.rollback()
    before = kernel.value("select fq_now()")
    ENDS[outcome](kernel, hand)
    (row,) = history(kernel)
    assert (row["outcome"], row["message_id"], row["attempt"]) == (outcome, hand.id, 1)
    assert (row["queue"], row["channel"], row["kind"], row["consumer"]) == ("q", "a", "parse", "me")
    assert row["channel_id"] == kernel.value("select id from fq_channel")
    assert row["enqueued_at"] <= row["ready_at"] <= row["started_at"] <= before <= row["finished_at"]
    assert row["error"] == {"retried": "boom", "buried": "poison"}.get(outcome)
    assert row["recorded_xid"] is not None


@pytest.mark.parametrize("outcome", ENDS)
def test_an_attempt_is_recorded_with_its_group(kernel: Kernel, outcome: str) -> None:
    """One by one and in batches, whatever the bits of the group; a message without one has none."""
    kernel.set_queue(history=True)
    groups = [None, UUID(int=1), UUID(int=1 << 64), UUID(int=2**128 - 1), uuid4()]
    kernel.enqueue(*"aaaaa")
    ids = [row["id"] for row in kernel.rows("select id from fq_message order by id")]
    for number, group in zip(ids, groups, strict=True):
        kernel.rows("update fq_message set group_id = %(group)s where id = %(id)s", group=group, id=number)
    hands = kernel.dequeue(5).hands
    ENDS[outcome](kernel, hands[0])
    if outcome == "completed":
        kernel.complete(*hands[1:])
    else:
        for hand in hands[1:]:
            ENDS[outcome](kernel, hand)
    assert [row["group_id"] for row in sorted(history(kernel), key=lambda row: row["message_id"])] == groups


def test_every_attempt_of_a_message_is_recorded(kernel: Kernel, clock: Clock) -> None:
    """Released, expired, retried with a delay, and out of attempts: a row each, ready from when it was given back."""
    hand = _recorded(kernel, max_attempts=3)
    kernel.release(hand)
    kernel.dequeue(lease=SECOND)
    clock.advance(timedelta(minutes=1))
    (hand,) = kernel.dequeue(lease=24 * HOUR).hands
    kernel.retry(hand, delay=HOUR, error="boom")
    clock.advance(timedelta(hours=2))
    kernel.dequeue(lease=SECOND)
    clock.advance(timedelta(minutes=1))
    assert kernel.dequeue().hands == []
    rows = history(kernel)
    assert [(row["outcome"], row["attempt"]) for row in rows] == [
        ("released", 1),
        ("expired", 1),
        ("retried", 2),
        ("buried", 3),
    ]
    assert rows[3]["error"] == "the lease of consumer me expired at attempt 3 of 3"
    released, expired, retried, buried = rows
    assert expired["ready_at"] == released["finished_at"]
    # reclaimed and handed out by one call
    assert retried["ready_at"] == retried["started_at"] <= expired["finished_at"]
    assert buried["ready_at"] == retried["finished_at"] + HOUR
    assert all(row["ready_at"] <= row["started_at"] <= row["finished_at"] for row in rows)


@pytest.mark.parametrize("end", ["release", "retry", "bury"])
def test_the_end_of_a_cancelled_attempt_is_cancelled(kernel: Kernel, end: str) -> None:
    """A cancelled message that is given back or buried is recorded as cancelled; one completed after all, as that."""
    hand = _recorded(kernel)
    kernel.cancel(hand.id)
    getattr(kernel, end)(hand)
    other = _recorded(kernel)
    kernel.cancel(other.id)
    kernel.complete(other)
    assert [(row["message_id"], row["outcome"]) for row in history(kernel)] == [
        (hand.id, "cancelled"),
        (other.id, "completed"),
    ]


def test_an_expired_attempt_of_a_cancelled_message_is_cancelled(kernel: Kernel, clock: Clock) -> None:
    """Where the worker died, the attempt of a cancelled message ends as cancelled, once."""
    kernel.set_queue(history=True)
    kernel.enqueue("a", "b", max_attempts=[1, 20])
    hands = kernel.dequeue(2, lease=SECOND).hands
    kernel.cancel(*(hand.id for hand in hands))
    clock.advance(timedelta(minutes=1))
    assert kernel.dequeue().hands == []
    assert [(row["outcome"], row["consumer"]) for row in history(kernel)] == [("cancelled", "me")] * 2


def test_batches_and_moved_rows_are_recorded_once_each(kernel: Kernel) -> None:
    """Of a batch with moved rows and lost tokens, each message that ended has one row and the lost ones none."""
    kernel.set_queue(history=True)
    kernel.enqueue(*["a", "b"] * 5)
    hands = kernel.dequeue(10).hands
    kernel.release(hands[0])
    kernel.rows("update fq_message set headers = '{}' where id = %(id)s", id=hands[1].id)
    assert kernel.complete(*hands) == {hands[0].id: "lost"}
    rows = history(kernel)
    assert sorted(row["message_id"] for row in rows) == sorted(hand.id for hand in hands)
    assert sorted(row["outcome"] for row in rows) == ["completed"] * 9 + ["released"]
    assert {row["channel"] for row in rows} == {"a", "b"}


def test_what_was_handed_out_decides(kernel: Kernel) -> None:
    """An attempt is recorded if the queue recorded when it began; other queues and earlier attempts leave no trace."""
    kernel.enqueue("a")
    (unrecorded,) = kernel.dequeue().hands
    hand = _recorded(kernel)
    other = Kernel(kernel.connection, queue="other")
    other.enqueue("a")
    other.drain()
    kernel.complete(unrecorded)
    kernel.set_queue(history=False)
    kernel.release(hand)
    kernel.drain()
    assert [(row["queue"], row["message_id"], row["outcome"]) for row in history(kernel)] == [
        ("q", hand.id, "released")
    ]


def test_a_consumer_whose_lease_is_gone_has_no_name(kernel: Kernel, clock: Clock) -> None:
    """An attempt whose lease somebody deleted by hand is recorded all the same, without the consumer."""
    hand = _recorded(kernel)
    kernel.rows("delete from fq_lease")
    clock.advance(timedelta(seconds=1))
    kernel.complete(hand)
    assert [row["consumer"] for row in history(kernel)] == [None]


@pytest.mark.usefixtures("cloned")
def test_completions_beside_an_open_transaction(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Each is counted once, also of a transaction that commits late, and no reading reads what was counted before."""
    kernel.set_queue(history=True)
    kernel.enqueue("late")
    (hand,) = kernel.dequeue().hands
    late = open_kernel()
    late.complete(hand)
    kernel.enqueue(*["a"] * 570)
    before = kernel.value("select pg_current_snapshot()::text")
    counted: list[tuple[str, int]] = []

    def count(before: str) -> None:
        call = "select channel, completed from fq_completions(%(before)s, '{q}')"
        counted.extend((row["channel"], row["completed"]) for row in kernel.rows(call, before=before))

    for messages in (500, 70):
        kernel.complete(*kernel.dequeue(messages).hands)
        after = kernel.value("select pg_current_snapshot()::text")
        assert_frugal(kernel, messages + 10, partial(count, before))
        before = after
    late.commit()
    count(before)
    assert counted == [("a", 500), ("a", 70), ("late", 1)]
