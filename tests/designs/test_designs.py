"""The published designs that benchmarks compare with do what they claim."""

from __future__ import annotations

import contextlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.bench.designs import DESIGNS, design_sql
from tests.bench.field.fairness import Service, jain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.database import MakeDatabase

    Task = tuple[int, str, bytes]

_FAIR = ("partitioned", "ranked", "numbered", "blocks", "channels")
_FAIR_ONE_BY_ONE = ("numbered", "blocks", "channels")
_FAIR_TO_NEWCOMERS = ("partitioned", "ranked", "blocks", "channels")
_TENANTS = 25
_EACH = 20
_IN_VAIN = 5


class Consumer:
    """A connection to a design."""

    def __init__(self, name: str, connection: psycopg.Connection) -> None:
        self._name = name
        self.connection = connection

    def enqueue(self, *tenants: str) -> None:
        """Add a task for each tenant, in this order; what it holds is its number."""
        contents = [str(number).encode() for number, _ in enumerate(tenants)]
        self.connection.execute(f"select {self._name}.enqueue(%s, %s)".encode(), (list(tenants), contents))

    def dequeue(self, limit: int) -> list[Task]:
        """Take tasks."""
        return self.connection.execute(f"select * from {self._name}.dequeue(%s)".encode(), (limit,)).fetchall()

    def drain(self, limit: int = 7) -> list[Task]:
        """Take and complete tasks until there are none; rivals may hold some now and then."""
        done: list[Task] = []
        empty = 0
        while empty < _IN_VAIN:
            tasks = self.dequeue(limit)
            ids = [task for task, _, _ in tasks]
            completed = self.connection.execute(f"select {self._name}.complete(%s)".encode(), (ids,)).fetchone()
            assert completed is not None
            assert (completed[0] or 0) == len(tasks)
            empty = 0 if tasks else empty + 1
            done += tasks
        return done


@pytest.fixture(params=DESIGNS)
def connect(request: pytest.FixtureRequest, make_database: MakeDatabase) -> Iterator[Callable[..., Consumer]]:
    """Connect to a database that has a design, each call anew."""
    database = make_database(installed=False)
    with contextlib.ExitStack() as stack:

        def consumer(*, autocommit: bool = True) -> Consumer:
            connection = psycopg.connect(database.conninfo, autocommit=autocommit)
            return Consumer(request.param, stack.enter_context(contextlib.closing(connection)))

        consumer().connection.execute(design_sql(request.param).encode())
        yield consumer


def test_three_consumers_deliver_each_task_once(connect: Callable[..., Consumer]) -> None:
    """Consumers that drain a design at the same time get each task once, and leave nothing."""
    tenants = ["a", "b", "c"] * 40
    connect().enqueue(*tenants)
    with ThreadPoolExecutor(3) as threads:
        done = [task for tasks in threads.map(Consumer.drain, [connect() for _ in range(3)]) for task in tasks]
    # A rival may have held the last ones just when a consumer gave up.
    done += connect().drain()
    assert Counter((tenant, int(content)) for _, tenant, content in done) == Counter(zip(tenants, range(120)))  # noqa: B905


def test_a_dequeue_that_rolls_back_gives_its_tasks_to_others(connect: Callable[..., Consumer]) -> None:
    """What a dequeue took is there again when its transaction rolls back."""
    connect().enqueue("a", "a", "a")
    consumer = connect(autocommit=False)
    first = consumer.dequeue(2)
    consumer.connection.rollback()
    assert sorted(consumer.dequeue(2)) == sorted(first)


def test_tenants_take_turns_in_a_fair_design(connect: Callable[..., Consumer], request: pytest.FixtureRequest) -> None:
    """A fair design serves tenants in turn whose tasks came one tenant after the other; the plain one does not.

    A dequeue takes as many tasks as there are tenants: the window function is fair within a batch alone. A window of
    Jain's index has a hundred tasks.
    """
    consumer = connect()
    for tenant in range(_TENANTS):
        consumer.enqueue(*[f"tenant-{tenant}"] * _EACH)
    tasks = consumer.drain(_TENANTS)
    indexes = jain([Service(tenant, 0.0, 0.01 * place) for place, (_, tenant, _) in enumerate(tasks)])
    assert (min(indexes) > 0.9) is (request.node.callspec.params["connect"] in _FAIR), indexes


def test_tenants_take_turns_where_tasks_are_taken_singly(
    connect: Callable[..., Consumer], request: pytest.FixtureRequest
) -> None:
    """Designs that remember whose turn it is are fair task by task; those that rank what waits take the oldest."""
    consumer = connect()
    for tenant in range(_TENANTS):
        consumer.enqueue(*[f"tenant-{tenant}"] * _EACH)
    first = {tenant for _ in range(_TENANTS) for _, tenant, _ in consumer.dequeue(1)}
    assert (len(first) == _TENANTS) is (request.node.callspec.params["connect"] in _FAIR_ONE_BY_ONE), first


def test_a_tenant_that_comes_late_takes_turns_with_the_others(
    connect: Callable[..., Consumer], request: pytest.FixtureRequest
) -> None:
    """After a tenant was served for long, it shares with one that comes now, unless each counts for itself."""
    consumer = connect()
    consumer.enqueue(*["early"] * 6 * _EACH)
    for _ in range(_EACH):
        consumer.dequeue(2)
    consumer.enqueue(*["late"] * 2 * _EACH)
    counts = Counter(tenant for _ in range(10) for _, tenant, _ in consumer.dequeue(4))
    # The head pointer counts milliseconds, and serves the same tenant again within one.
    assert (len(counts) == len(("early", "late"))) is (request.node.callspec.params["connect"] in _FAIR_TO_NEWCOMERS), (
        counts
    )
