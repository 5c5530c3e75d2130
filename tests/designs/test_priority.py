"""A priority column: the order is right with each index, and each has a backlog that one dequeue reads in whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.designs import PRIORITY_INDEXES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.designs.installed import Consumer, Design

_ADD = (
    "insert into priority.task (tenant, content, priority, dequeue_at)"
    " select %s, '', {priority}, now() + interval '1 hour' * %s from generate_series(1, %s) i"
)
_LATER, _DUE = 1, -1
# One urgent task each priority, so that no scan can skip over them as a group.
_URGENT, _ORDINARY = "i", "1000000"
_PATHOLOGICAL = {
    "first": [(_URGENT, _LATER)],
    "last": [(_ORDINARY, _DUE)],
    "separate": [(_URGENT, _LATER), (_ORDINARY, _DUE)],
}
_HEALTHY = {"first": (_ORDINARY, _DUE), "last": (_URGENT, _LATER), "separate": (_ORDINARY, _LATER)}
_BACKLOG = 20_000


def _add(consumer: Consumer, priority: str, when: int, count: int) -> None:
    consumer.rows(_ADD.format(priority=priority), f"{priority} {when}", when, count)


@pytest.mark.parametrize("name", PRIORITY_INDEXES)
def test_the_most_urgent_of_what_is_due(name: str, install_design: Callable[..., Design]) -> None:
    """Priority decides among what is due, time among equals, and what is for later stays."""
    consumer = install_design("priority", PRIORITY_INDEXES[name]).consumer()
    consumer.rows(
        "insert into priority.task (tenant, content, priority, dequeue_at) values"
        " ('second', '', 1, now() - interval '1 minute'), ('third', '', 2, now() - interval '1 hour'),"
        " ('first', '', 1, now() - interval '2 minutes'), ('never', '', 0, now() + interval '1 hour')"
    )
    assert [task.tenant for _ in range(4) for task in consumer.dequeue(1)] == ["first", "second", "third"]


@pytest.mark.parametrize("name", PRIORITY_INDEXES)
def test_each_index_has_a_backlog_that_every_dequeue_reads(name: str, install_design: Callable[..., Design]) -> None:
    """With a backlog that suits the index a dequeue reads a few pages, with another it reads all the backlog."""
    healthy = _pages(install_design("priority", PRIORITY_INDEXES[name]).consumer(), [_HEALTHY[name]])
    pathological = _pages(install_design("priority", PRIORITY_INDEXES[name]).consumer(), _PATHOLOGICAL[name])
    assert healthy < 40, healthy
    assert pathological > 5 * healthy, (healthy, pathological)


def _pages(consumer: Consumer, backlog: list[tuple[str, int]]) -> int:
    for priority, when in backlog:
        _add(consumer, priority, when, _BACKLOG)
    _add(consumer, _ORDINARY, _DUE, 1)
    consumer.rows("vacuum analyze priority.task")
    [[plan]] = consumer.rows(
        "explain (analyze, buffers, format json) select t.id from priority.task t where t.started_at is null"
        " and t.dequeue_at <= now() order by t.priority, t.dequeue_at, t.id limit 1 for update skip locked"
    )
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
