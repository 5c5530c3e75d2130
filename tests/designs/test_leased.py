"""The leased task table: take-over, extension, priority, the limit of consumers, and what it cannot tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.designs.installed import Design

_LATER = "update leased.task set started_at = started_at - interval '4 minutes'"


def test_a_stalled_task_is_taken_over(install_design: Callable[..., Design]) -> None:
    """A started task is nobody else's for five minutes, and then anybody's."""
    consumer = install_design("leased").consumer()
    consumer.enqueue("a")
    taken = consumer.dequeue(1)
    consumer.rows(_LATER)
    assert consumer.dequeue(1) == []
    consumer.rows(_LATER)
    assert consumer.dequeue(1) == taken


def test_an_extended_lease_is_kept(install_design: Callable[..., Design]) -> None:
    """Who extends in time keeps the task."""
    consumer = install_design("leased").consumer()
    consumer.enqueue("a", "b")
    kept, lost = consumer.dequeue(2)
    consumer.rows(_LATER)
    consumer.rows("select leased.extend(%s)", [kept.id])
    consumer.rows(_LATER)
    assert consumer.dequeue(2) == [lost]


def test_urgent_tasks_first(install_design: Callable[..., Design]) -> None:
    """A higher priority is served first, the older first among equals."""
    consumer = install_design("leased").consumer()
    consumer.enqueue("a", "b")
    consumer.enqueue("urgent", priority=5)
    assert [consumer.dequeue(1)[0].tenant for _ in range(3)] == ["urgent", "a", "b"]


def test_a_name_stands_once(install_design: Callable[..., Design]) -> None:
    """A second task with a name adds nothing while the first is there."""
    consumer = install_design("leased").consumer()
    consumer.enqueue("a", name="nightly")
    consumer.enqueue("a", name="nightly")
    tasks = consumer.dequeue(9)
    assert len(tasks) == 1
    consumer.complete(tasks)
    consumer.enqueue("a", name="nightly")
    assert len(consumer.dequeue(9)) == 1


def test_the_limit_of_consumers_is_only_read(install_design: Callable[..., Design]) -> None:
    """At most so many run, stalled ones not counted; two that look at the same instant pass the limit together."""
    design = install_design("leased")
    consumer, rival = design.consumer(), design.consumer(autocommit=False)
    consumer.enqueue(*["a"] * 9)
    assert len(rival.dequeue(9, most_running=3)) == 3
    assert len(consumer.dequeue(9, most_running=3)) == 3
    rival.connection.commit()
    assert consumer.dequeue(9, most_running=3) == []
    assert len(consumer.dequeue(9, most_running=7)) == 1


def test_whoever_lost_a_task_can_complete_it(install_design: Callable[..., Design]) -> None:
    """The first consumer's late completion removes the task from the hands of the second: there is no fencing token."""
    consumer = install_design("leased").consumer()
    consumer.enqueue("a")
    first = consumer.dequeue(1)
    second = consumer.dequeue(1, stalled="-1 second")
    assert consumer.complete(first) == 1
    assert consumer.complete(second) == 0
