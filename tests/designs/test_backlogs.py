"""Backlogs that benchmarks put into tables in SQL are delivered as if they had been enqueued."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import NullPool, create_engine

from sqlalchemy_fairqueue import Queue
from tests.bench.designs import DESIGNS
from tests.bench.field.backlogs import FILLINGS
from tests.bench.wire import Wire
from tests.designs.installed import tenants_of
from tests.fixtures.database import install

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.designs.installed import Consumer, Design, Task
    from tests.fixtures.database import MakeDatabase


def _drain(consumer: Consumer) -> list[Task]:
    done: list[Task] = []
    while tasks := consumer.dequeue(7):
        consumer.complete(tasks)
        done += tasks
    return done


def _fill(name: str, conninfo: str, *, first: int, count: int, tenants: int, later: bool = False) -> None:
    wire = Wire(conninfo)
    FILLINGS[name].fill(wire, first=first, count=count, tenants=tenants, later=later)
    wire.close()


def _numbers(first: int, count: int) -> Counter[bytes]:
    return Counter(str(number).encode() for number in range(first, first + count))


@pytest.mark.parametrize("name", sorted(FILLINGS.keys() & DESIGNS.keys()))
def test_a_design_delivers_what_was_filled_in(name: str, install_design: Callable[..., Design]) -> None:
    """Filled twice, with a drain between, and enqueued once in the ordinary way: each task is delivered once."""
    design = install_design(name)
    consumer = design.consumer()
    _fill(name, design.database.conninfo, first=0, count=20, tenants=4)
    first = _drain(consumer)
    assert Counter(task.content for task in first) == _numbers(0, 20)
    assert tenants_of(first) == {f"tenant-{number}": 5 for number in range(4)}
    _fill(name, design.database.conninfo, first=20, count=30, tenants=10)
    consumer.enqueue("tenant-0", "new")
    assert Counter(task.content for task in _drain(consumer)) == _numbers(20, 30) + _numbers(0, 2)


@pytest.mark.parametrize("name", [name for name in sorted(DESIGNS) if name in FILLINGS and FILLINGS[name].later])
def test_what_is_for_tomorrow_is_not_delivered_today(name: str, install_design: Callable[..., Design]) -> None:
    """Tasks for tomorrow stay where they are, and those of the same tenant that are ready come."""
    design = install_design(name)
    _fill(name, design.database.conninfo, first=0, count=10, tenants=1, later=True)
    _fill(name, design.database.conninfo, first=10, count=5, tenants=1)
    assert Counter(task.content for task in _drain(design.consumer())) == _numbers(10, 5)


def test_the_library_delivers_what_was_filled_in(make_database: MakeDatabase) -> None:
    """Filled three times, once for tomorrow: what is ready is delivered, each message once."""
    database = make_database(installed=False)
    database.execute("create schema fairqueue")
    engine = create_engine(database.url, poolclass=NullPool)
    with engine.begin() as connection:
        install(connection, schema="fairqueue")
    _fill("fairqueue", database.conninfo, first=0, count=20, tenants=4)
    _fill("fairqueue", database.conninfo, first=20, count=10, tenants=1, later=True)
    _fill("fairqueue", database.conninfo, first=30, count=30, tenants=10)
    queue = Queue("bench", schema="fairqueue")
    delivered = queue.dequeue(engine, limit=100)
    assert Counter(delivery.payload for delivery in delivered) == Counter([*range(20), *range(30, 60)])
    assert Counter(delivery.channel for delivery in delivered)["tenant-9"] == 3
