"""Tokens with a null, which are those of messages that nobody holds, change nothing; a cost counts once a call."""

from dataclasses import replace
from itertools import product

import psycopg
import pytest

from tests.sql.answers import Hand
from tests.sql.client import Kernel

_WAITING = "select count(*) from fq_message where lease_id is null"


def _forged(kernel: Kernel, count: int) -> list[Hand]:
    """What a caller would send who settles messages that wait, without a lease."""
    kernel.enqueue(*["a"] * count)
    [taken] = kernel.dequeue(1).hands
    kernel.release(taken)
    rows = kernel.rows("select id, ctid::text as row, deliveries from fq_message")
    hands = [
        replace(taken, id=row["id"], row=row["row"], deliveries=row["deliveries"], lease_id=None)  # type: ignore[arg-type]
        for row in rows
    ]
    assert len(hands) == count
    return hands


def test_messages_that_wait_are_not_settled(kernel: Kernel) -> None:
    """Without a lease id each delivery is lost, whether its row is where the caller says or not."""
    for count in 1, 3:
        hands = _forged(kernel, count)
        before = kernel.rows("select * from fq_message order by id")
        for verb, moved in product(("complete", "retry", "release", "bury"), (False, True)):
            tokens = [replace(hand, row="(4000,1)") for hand in hands] if moved else hands
            assert getattr(kernel, verb)(*tokens) == {hand.id: "lost" for hand in hands}
            assert kernel.rows("select * from fq_message order by id") == before
        assert kernel.value("select count(*) from fq_dead_letter") == 0
        assert len(kernel.drain()) == count


def test_a_token_without_lease_does_not_hinder_others(kernel: Kernel) -> None:
    """Of several deliveries, those with a lease id are settled."""
    kernel.enqueue("a", "a", "a")
    [good] = kernel.dequeue(1).hands
    bad = [
        replace(good, id=row["id"], row=row["row"], deliveries=row["deliveries"], lease_id=None)  # type: ignore[arg-type]
        for row in kernel.rows("select id, ctid::text as row, deliveries from fq_message where lease_id is null")
    ]
    assert kernel.complete(bad[0], good, bad[1]) == {hand.id: "lost" for hand in bad}
    assert kernel.value(_WAITING) == 2


def test_messages_that_wait_have_no_costs_to_correct(kernel: Kernel) -> None:
    """Without a lease id nothing is corrected."""
    kernel.set_queue(fair_by="cost")
    hands = _forged(kernel, 2)
    kernel.hear()
    kernel.correct_all(hands, [50, 60])
    assert kernel.value("select count(*) from fq_signal") == 0


def test_a_cost_counts_once(kernel: Kernel) -> None:
    """Of several costs of one delivery in a call the last one counts, for its channel and in the history."""
    kernel.set_queue(fair_by="cost")
    kernel.set_queue(history=True)
    kernel.enqueue("a", "a", costs=[10, 20])
    first, second = kernel.dequeue(2).hands
    with kernel.connection.transaction():
        kernel.correct_all([first, second, first, first], [90, 25, 70, 13])
        assert kernel.value("select sum(cost) from fq_signal where cost is not null") == 3 + 5
        kernel.complete(first, second)
    assert [row["cost"] for row in kernel.rows("select cost from fq_history order by message_id")] == [13, 25]


def test_no_correction_leaves_virtual_time(kernel: Kernel) -> None:
    """However much is refunded or charged, the tag stays in the range of tags."""
    first, least, greatest = -9 * 10**18, -(2**63), 2**63 - 1
    values = product(
        (first, first + 1, -1, None), (least, -1, 0, greatest), (1, 7), (least, -(10**14), 10**14, greatest),
        (False, True),
    )  # fmt: skip
    for tag, rest, weight, cost, ready in values:
        found = kernel.rows(
            "select * from fq_tag_heard(-5, %(tag)s, %(rest)s, %(weight)s, %(cost)s, %(ready)s, %(first)s)",
            tag=tag, rest=rest, weight=weight, cost=cost, ready=ready, first=first,
        )  # fmt: skip
        assert first <= found[0]["tag"] <= -1


def test_nobody_sets_the_virtual_time(kernel: Kernel) -> None:
    """A consumer that hears signals does not say where virtual time is."""
    with pytest.raises(psycopg.errors.UndefinedFunction):
        kernel.rows("select fq_hear('q', -1)")
