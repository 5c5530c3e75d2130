"""Tables that a user has added columns to, as the models' documentation allows: everything goes on."""

import re
from datetime import timedelta

import pytest

from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION, tables
from tests.fixtures.clock import Clock
from tests.sql.client import HOUR, SECOND, Kernel
from tests.sql.kernel.verbs import stats
from tests.sql.life.verbs import history, keep_history, redrive
from tests.sql.load.loads import load

# What is ours by its name: variables, constants, arguments, tables and functions.
_ours = re.compile(r"[vcp]_|fq_")


# The domain's default and the flag in the catalog: for each default or constraint of a column of its own PostgreSQL
# reads those of all columns again, which takes ten times as long as the rest of the test.
_DOMAIN = "create domain theirs as text default 'theirs'"
_NOT_NULL = (
    "update pg_attribute set attnotnull = true where attrelid = '{table}'::regclass and atttypid = 'theirs'::regtype"
)


# The functions that name a table, in their bodies or in their signatures, or have an argument of its name, and those of
# its triggers. The names in all functions would be three times as many columns, which take four times as long.
_READ_BY = """
select string_agg(pg_get_functiondef(p.oid), ' ') from pg_proc p where starts_with(p.proname, 'fq_') and (
  pg_get_functiondef(p.oid) ~ '{table}|p_{argument}'
  or exists (select from pg_trigger t where t.tgfoid = p.oid and t.tgrelid = '{table}'::regclass))
"""


def add_columns(kernel: Kernel, kind: str) -> None:
    """Give each table a column by every name that occurs in a function that it has to do with; texts are not null and
    have a default.
    """
    kernel.rows(_DOMAIN)
    for table in tables(NEEDED_VERSION):
        bodies = kernel.value(_READ_BY.format(table=table, argument=table.removeprefix("fq_"))) or ""
        words = re.findall(r"[a-z_][a-z0-9_]*", re.sub(r"--.*", "", bodies))
        names = {word for word in words if not _ours.match(word)}
        assert table != "fq_message" or {"message_id", "row", "ord"} < names
        there = kernel.value(f"select array_agg(attname::text) from pg_attribute where attrelid = '{table}'::regclass")
        added = ", ".join(f'add column "{name}" {kind}' for name in sorted(names.difference(there)))
        kernel.rows(f"alter table {table} {added}")
        kernel.rows(_NOT_NULL.format(table=table))


@pytest.mark.many(1)
@pytest.mark.parametrize("kind", [pytest.param("theirs", marks=pytest.mark.whole), "bigint"])
@pytest.mark.parametrize("recorded", [False, True], ids=["no history", "history"])
def test_every_table_takes_further_columns(kernel: Kernel, clock: Clock, kind: str, *, recorded: bool) -> None:
    """A message's whole life, the bulk load's and the housekeeping's: no name of a column means another thing to us."""
    add_columns(kernel, kind)
    kernel.set_queue(history=recorded)
    kernel.configure("a", 10)
    kernel.enqueue(*"aaaaaa", max_attempts=[20] * 5 + [1])
    kernel.enqueue("b", keys=["1"])
    kernel.enqueue("b", keys=["1"], on="replace")
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
