"""Tables that a user has added a column to, as the models' documentation allows: everything goes on."""

from datetime import timedelta

import pytest

from sqlalchemy_fairqueue.sql import tables
from tests.fixtures.clock import Clock
from tests.sql.kernel import HOUR, SECOND, Kernel
from tests.sql.v2_kernel.verbs import record, stats
from tests.sql.v2_life.verbs import enqueue, history, keep_history, redrive
from tests.sql.v2_load.loads import load


@pytest.mark.parametrize("recorded", [False, True], ids=["no history", "history"])
def test_every_table_takes_a_further_column(kernel: Kernel, clock: Clock, *, recorded: bool) -> None:
    """A message's whole life, the bulk load's and the housekeeping's, with one column more in each table."""
    for table in tables(2):
        kernel.rows(f"alter table {table} add column tenant text not null default 'theirs'")
    record(kernel, recorded)
    kernel.configure("a", 10)
    kernel.enqueue(*"aaaaaa", max_attempts=[20] * 5 + [1])
    enqueue(kernel, "b", keys=["1"])
    enqueue(kernel, "b", keys=["1"], on="replace")
    assert load(kernel, "c", "c").created == 2
    hands = kernel.dequeue(100, lease=24 * HOUR).hands
    assert len(hands) == 9
    kernel.complete(hands.pop())
    kernel.complete(hands.pop(), hands.pop())
    kernel.release(hands.pop())
    kernel.retry(hands.pop(), error="boom")
    kernel.bury(hands.pop(), reason="poison")
    kernel.cancel(hands[0].id)
    kernel.release(hands.pop(0))
    kernel.dequeue(100, lease=SECOND)
    clock.advance(timedelta(days=2))
    again = kernel.dequeue(100, lease=HOUR).hands
    kernel.complete(*again)
    keep_history(kernel)
    assert set(redrive(kernel).values()) == {"redriven"}
    kernel.complete(*kernel.dequeue(100).hands)
    assert kernel.value("select count(*) from fq_message") == 0
    assert stats(kernel)["dead"] == 0
    outcomes = {row["outcome"] for row in history(kernel)}
    assert outcomes == ({"completed", "released", "retried", "buried", "cancelled", "expired"} if recorded else set())
    assert all(row["tenant"] == "theirs" for row in history(kernel))
