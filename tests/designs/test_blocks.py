"""Block-sequenced ids: ids that are fair in themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.designs.installed import tenants_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.designs.installed import Design

_BLOCK = 1024 * 1024


def test_ids_are_a_place_in_a_block(install_design: Callable[..., Design]) -> None:
    """A group's n-th task has the group's place in the n-th block."""
    consumer = install_design("blocks").consumer()
    consumer.enqueue("a", "a", "b")
    consumer.enqueue("a", "b")
    assert sorted((task.id, task.tenant) for task in consumer.dequeue(9)) == [
        (0, "a"),
        (1, "b"),
        (_BLOCK, "a"),
        (_BLOCK + 1, "b"),
        (2 * _BLOCK, "a"),
    ]


def test_a_pop_moves_the_pointer_to_where_a_new_group_begins(install_design: Callable[..., Design]) -> None:
    """A group that comes later begins at the block popped last, beside those who have waited."""
    consumer = install_design("blocks").consumer()
    consumer.enqueue(*["whale"] * 10)
    consumer.dequeue(4)
    assert consumer.rows("select block from blocks.pointer") == [(3,)]
    consumer.enqueue("minnow", "minnow")
    assert [tenants_of(consumer.dequeue(1)) for _ in range(4)] == [
        {"minnow": 1},
        {"whale": 1},
        {"minnow": 1},
        {"whale": 1},
    ]


def test_the_pointer_never_goes_back(install_design: Callable[..., Design]) -> None:
    """A pop of an earlier id, which was given back after a later one was popped, leaves the pointer where it is."""
    consumer = install_design("blocks").consumer()
    consumer.enqueue(*["a"] * 6)
    consumer.dequeue(4)
    consumer.rows("update blocks.task set started_at = null where id = 0")
    assert [task.id for task in consumer.dequeue(1)] == [0]
    assert consumer.rows("select block from blocks.pointer") == [(3,)]


def test_pops_stand_in_line_at_the_pointer(install_design: Callable[..., Design]) -> None:
    """A pop that moves the pointer makes the next one wait until its transaction has ended, with tasks to spare."""
    design = install_design("blocks")
    design.consumer().enqueue(*["a"] * 6)
    design.consumer(autocommit=False).dequeue(2)
    rival = design.consumer()
    rival.rows("set lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        rival.dequeue(2)


def test_the_window_bounds_a_batch_and_not_what_is_in_flight(install_design: Callable[..., Design]) -> None:
    """A concurrency of two gives each group two tasks a batch, and the next batch two more whatever is running."""
    consumer = install_design("blocks").consumer()
    consumer.enqueue(*["whale"] * 10, *["minnow"] * 3)
    assert tenants_of(consumer.dequeue(100, concurrency=2)) == {"whale": 2, "minnow": 2}
    assert tenants_of(consumer.dequeue(100, concurrency=2)) == {"whale": 2, "minnow": 1}


def test_producers_of_a_group_stand_in_line(install_design: Callable[..., Design]) -> None:
    """An enqueue for a group waits until another transaction that has enqueued for it has ended."""
    design = install_design("blocks")
    design.consumer().enqueue("a")
    producer = design.consumer(autocommit=False)
    producer.enqueue("a")
    rival = design.consumer()
    rival.rows("set lock_timeout = '50ms'")
    rival.enqueue("b")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        rival.enqueue("a")
