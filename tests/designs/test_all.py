"""Requirements that every published design must meet to be worth comparing with."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.bench.designs import DESIGNS
from tests.designs.installed import tenants_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.designs.installed import Consumer, Design, Task

_TENANTS = ("a", "b", "c")
_EACH = 40
_IN_VAIN = 5
_FAIR = ("partitioned", "blocks", "channels")


def _drain(consumer: Consumer) -> list[Task]:
    done: list[Task] = []
    empty = 0
    while empty < _IN_VAIN:
        tasks = consumer.dequeue(7)
        empty = 0 if tasks else empty + 1
        assert consumer.complete(tasks) == len(tasks)
        done += tasks
    return done


@pytest.mark.parametrize("name", DESIGNS)
def test_three_consumers_deliver_each_task_once(name: str, install_design: Callable[..., Design]) -> None:
    """Consumers that drain a design at the same time get each task once, and leave nothing."""
    design = install_design(name)
    design.consumer().enqueue(*_TENANTS * _EACH)
    consumers = [design.consumer() for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        done = [task for tasks in threads.map(_drain, consumers) for task in tasks]
    # A rival may have held the last ones just when a consumer gave up.
    done += _drain(design.consumer())
    assert Counter(task.content for task in done) == Counter(str(n).encode() for n in range(len(_TENANTS) * _EACH))
    assert tenants_of(done) == dict.fromkeys(_TENANTS, _EACH)


@pytest.mark.parametrize("name", DESIGNS)
def test_a_dequeue_that_rolls_back_gives_its_tasks_to_others(name: str, install_design: Callable[..., Design]) -> None:
    """What a dequeue took is there again, in the same order, when its transaction rolls back."""
    design = install_design(name)
    design.consumer().enqueue("a", "a", "a")
    consumer = design.consumer(autocommit=False)
    first = consumer.dequeue(2)
    consumer.connection.rollback()
    assert sorted(consumer.dequeue(2)) == sorted(first)


@pytest.mark.parametrize("name", DESIGNS)
def test_who_serves_a_tenant_that_comes_second(name: str, install_design: Callable[..., Design]) -> None:
    """Of a whale's tasks and one of a minnow that came last, a fair design serves the minnow among the first two."""
    design = install_design(name)
    consumer = design.consumer()
    consumer.enqueue(*["whale"] * 30)
    consumer.enqueue("minnow")
    if name == "channels":
        # Its clock has milliseconds: visits within one are a tie, and a tie may go to the whale.
        assert "minnow" in tenants_of([task for _ in range(10) for task in consumer.dequeue(1)])
        return
    first = tenants_of(consumer.dequeue(2))
    assert first == ({"whale": 1, "minnow": 1} if name in _FAIR else {"whale": 2})
