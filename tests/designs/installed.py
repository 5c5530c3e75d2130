"""A published design in a database of the test's own."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from tests.bench.designs import DESIGNS, design_sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.fixtures.database import Database, MakeDatabase


class Task(NamedTuple):
    """What a dequeue gives."""

    id: int
    tenant: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Design:
    """A design that is installed, and connections to it.

    Attributes:
        name: its schema.
        database: where it is.
    """

    name: str
    database: Database
    _stack: contextlib.ExitStack

    def consumer(self, *, autocommit: bool = True) -> Consumer:
        """Open one more connection; without *autocommit* everything stays in one open transaction."""
        connection = psycopg.connect(self.database.conninfo, autocommit=autocommit)
        return Consumer(self.name, self._stack.enter_context(contextlib.closing(connection)))


@dataclass(frozen=True, slots=True)
class Consumer:
    """One connection to a design."""

    schema: str
    connection: psycopg.Connection

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, if it has any."""
        found = self.connection.execute(sql.encode(), values)
        return found.fetchall() if found.description else []

    def enqueue(self, *tenants: str, **options: object) -> None:
        """Add a task for each tenant, in this order; what it holds is its number."""
        contents = [str(number).encode() for number, _ in enumerate(tenants)]
        names = "".join(f", p_{name} => %s" for name in options)
        self.rows(f"select {self.schema}.enqueue(%s, %s{names})", list(tenants), contents, *options.values())

    def dequeue(self, limit: int, **options: object) -> list[Task]:
        """Take tasks."""
        names = "".join(f", p_{name} => %s" for name in options)
        found = self.rows(f"select * from {self.schema}.dequeue(%s{names})", limit, *options.values())
        return [Task(*row) for row in found]

    def complete(self, tasks: Iterable[Task]) -> int:
        """Complete tasks, and return how many there were."""
        return int(self.rows(f"select {self.schema}.complete(%s)", [task.id for task in tasks])[0][0] or 0)


def tenants_of(tasks: Iterable[Task]) -> Counter[str]:
    """How many tasks each tenant has among *tasks*."""
    return Counter(task.tenant for task in tasks)


@pytest.fixture
def install_design(make_database: MakeDatabase) -> Iterator[Callable[..., Design]]:
    """Install a design: ``install_design("fifo")``, or with files of one's own."""
    with contextlib.ExitStack() as stack:

        def install(name: str, files: tuple[Path, ...] = ()) -> Design:
            database = make_database(installed=False)
            with psycopg.connect(database.conninfo, autocommit=True) as connection:
                connection.execute(design_sql(files or DESIGNS[name]).encode())
            return Design(name, database, stack)

        yield install
