"""Logical decoding: each enqueue and each settlement once, in the order of the commits, from a position that lasts."""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.sql.client import Kernel, OpenKernel

_CHANGE = re.compile(r"table public\.(fq_message|fq_dead_letter): (INSERT|DELETE): (?:id|message_id)\[bigint\]:(\d+)")
_CHANGES = "select data from pg_logical_slot_{}_changes(current_database()::text, null, null, 'include-xids', '0')"

Events = Callable[..., list[tuple[str, ...]]]


@pytest.fixture
def events(kernel: Kernel) -> Iterator[Events]:
    """The events since the last call, a tuple a transaction: ``events()``, or ``events(peek=True)`` to stay there."""
    kernel.value("select pg_create_logical_replication_slot(current_database()::text, 'test_decoding') is null")

    def read(*, peek: bool = False) -> list[tuple[str, ...]]:
        transactions: list[list[str]] = []
        for row in kernel.rows(_CHANGES.format("peek" if peek else "get")):
            if row["data"] == "BEGIN":
                transactions.append([])
            elif found := _CHANGE.match(row["data"]):
                name = {"fq_message": "message", "fq_dead_letter": "letter"}[found[1]]
                transactions[-1].append(f"{found[2].lower()} {name} {found[3]}")
        return [tuple(sorted(one)) for one in transactions if one]

    yield read
    kernel.rows("select pg_drop_replication_slot(current_database()::text)")


def test_each_enqueue_and_settlement_is_one_event(kernel: Kernel, open_kernel: OpenKernel, events: Events) -> None:
    """In the order of commits, whatever the order of ids; nothing of a rollback, a delivery, a release or a retry."""
    kernel.set_queue(history=True)
    # With a publication, deletes of a table that has no key would fail from now on.
    kernel.rows(
        "create publication queue_events for table fq_message, fq_dead_letter with (publish = 'insert, delete')"
    )
    early, undone = open_kernel(), open_kernel()
    early.enqueue("a")
    undone.enqueue("c")
    kernel.enqueue("b")
    early.commit()
    undone.rollback()
    first, second = (row["id"] for row in kernel.rows("select id from fq_message order by id"))
    expected = [(f"insert message {second}",), (f"insert message {first}",)]
    assert events(peek=True) == expected
    assert events() == expected
    assert events() == []
    hands = {hand.id: hand for hand in kernel.dequeue(2).hands}
    kernel.release(hands[first])
    kernel.retry(hands[second], error="again")
    hands = {hand.id: hand for hand in kernel.dequeue(2).hands}
    assert events() == []
    kernel.complete(hands[first])
    kernel.bury(hands[second], reason="poison")
    assert events() == [(f"delete message {first}",), (f"delete message {second}", f"insert letter {second}")]
    kernel.rows("select fq_redrive('q', array[%(id)s]::bigint[])", id=second)
    assert events() == [(f"delete letter {second}", f"insert message {second}")]
    told = kernel.rows("select message_id from fq_history where outcome in ('completed', 'buried') order by id")
    assert [row["message_id"] for row in told] == [first, second]
