"""The SQL functions as fixtures: see tests/sql/client.py; and the database that these tests hand on."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from sqlalchemy import URL, Engine

from sqlalchemy_fairqueue.embedded.server import drop_database
from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION
from tests.fixtures.clock import Clock, install_clock
from tests.fixtures.database import Database, MakeDatabase, clone
from tests.sql.client import Kernel, OpenKernel, kernel, opener
from tests.sql.kernel.verbs import unbalanced
from tests.sql.recycled import Recycled

__all__ = ["balanced", "kernel", "open_kernel"]


@pytest.fixture
def balanced(kernel: Kernel) -> Iterator[None]:
    """At the end of the test all sums are right."""
    yield
    assert unbalanced(kernel) == []


@pytest.fixture(scope="session")
def recycled(
    server_url: URL, maintenance: Engine, template: Callable[[str | None, int], str], run_name: str, worker_id: str
) -> Iterator[dict[bool, Recycled]]:
    """The databases that are handed on, by whether their clock can be put forward."""
    numbers = count(1)

    def make() -> Database:
        made = Database(server_url.set(database=f"{run_name}_{worker_id}_recycled{next(numbers)}"))
        clone(maintenance, template(None, NEEDED_VERSION), made)
        return made

    def unmake(made: Database) -> None:
        made.own.dispose()
        with maintenance.connect() as connection:
            drop_database(connection, made.name)

    both = {clocked: Recycled(make, unmake, clocked) for clocked in (False, True)}
    yield both
    for one in both.values():
        one.drop()


@pytest.fixture
def cloned() -> None:
    """The test has a database of its own: it looks at plans, or at what the server keeps of earlier work."""


@pytest.fixture
def handed_on(request: pytest.FixtureRequest, recycled: dict[bool, Recycled]) -> Iterator[Recycled | None]:
    """The database that the test is handed, unless it has one of its own."""
    if "cloned" in request.fixturenames:
        yield None
        return
    found = recycled["clock" in request.fixturenames]
    yield found
    found.give_back()


@pytest.fixture
def database(handed_on: Recycled | None, make_database: MakeDatabase) -> Database:
    """An empty database with the library installed."""
    return handed_on.take() if handed_on else make_database()


@pytest.fixture
def clock(handed_on: Recycled | None, database: Database) -> Clock:
    """The test's clock: ``clock.advance(timedelta(minutes=5))``."""
    return handed_on.clock() if handed_on else install_clock(database)


@pytest.fixture
def open_kernel(handed_on: Recycled | None, database: Database) -> Iterator[OpenKernel]:
    """Open one more connection to the test's database: ``open_kernel(isolation="SERIALIZABLE")``, in a transaction."""
    if handed_on is None:
        with opener(database) as open_one:
            yield open_one
    else:
        yield handed_on.open
