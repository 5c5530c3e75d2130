"""The window function: fair, and one consumer at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.designs.installed import tenants_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.designs.installed import Design


def test_a_batch_deals_to_tenants_in_turn(install_design: Callable[..., Design]) -> None:
    """However uneven the backlogs, a batch holds as many of each tenant as it has, the same for all."""
    consumer = install_design("partitioned").consumer()
    consumer.enqueue(*["whale"] * 50, *["cod"] * 5, "minnow")
    assert tenants_of(consumer.dequeue(10)) == {"whale": 5, "cod": 4, "minnow": 1}


@pytest.mark.parametrize(("name", "rival_gets"), [("partitioned", 0), ("fifo", 10)])
def test_rivals_choose_the_same_tasks(name: str, rival_gets: int, install_design: Callable[..., Design]) -> None:
    """While one dequeue is under way a second gets nothing, with 90 tasks waiting; the plain FIFO gives a batch."""
    design = install_design(name)
    design.consumer().enqueue(*["a"] * 100)
    assert len(design.consumer(autocommit=False).dequeue(10)) == 10
    assert len(design.consumer().dequeue(10)) == rival_gets


@pytest.mark.parametrize(("name", "proportional"), [("partitioned", True), ("fifo", False)])
def test_each_dequeue_reads_the_whole_backlog(
    name: str, install_design: Callable[..., Design], *, proportional: bool
) -> None:
    """Ten times the backlog makes the dequeue of one task read ten times as much; the plain FIFO reads the same."""
    read = []
    for backlog in (1_000, 10_000):
        consumer = install_design(name).consumer()
        consumer.enqueue(*["a"] * backlog)
        consumer.rows(f"vacuum analyze {name}.task")
        consumer.rows("begin")
        consumer.dequeue(1)
        [[fetched]] = consumer.rows(
            "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) + ("
            "select coalesce(sum(pg_stat_get_xact_tuples_returned(i.indexrelid)), 0) from pg_index i"
            " where i.indrelid = t.relid) from pg_stat_xact_user_tables t where schemaname = %s and relname = 'task'",
            name,
        )
        consumer.rows("rollback")
        read.append(fetched)
    assert (read[1] > 5 * read[0]) is proportional, read
