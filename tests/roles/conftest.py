"""An installation in a schema of its own, and roles that log in and were granted kinds of work."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import URL, Engine, NullPool, create_engine

from tests.cli.conftest import bare_cli
from tests.fixtures.database import Database, MakeDatabase

__all__ = ["bare_cli"]

SCHEMA = "jobs"


@dataclass(frozen=True, slots=True)
class Actor:
    """A role that logs in.

    Attributes:
        name: Its name.
        url: Logs in as it does.
        engine: Connects as it does.
    """

    name: str
    url: URL
    engine: Engine

    @property
    def words(self) -> list[str]:
        """Options of the command line that connect as it does."""
        return ["--schema", SCHEMA, "--database-url", self.url.render_as_string(hide_password=False)]


@dataclass(frozen=True, slots=True)
class Installation:
    """The installation of a test.

    Attributes:
        database: The database that holds it.
        owner: Connects as the owner of its tables.
    """

    database: Database
    owner: Engine
    _stack: contextlib.ExitStack

    def role(self, name: str, *kinds: str, **bounds: Collection[str] | None) -> Actor:
        """A role that logs in, with grants of these kinds, each within these bounds."""
        name = f"{self.database.name}_{name}"
        self.database.execute(f'create role "{name}" login')

        def drop() -> None:
            self.database.execute(f'drop owned by "{name}"')
            self.database.execute(f'drop role "{name}"')

        self._stack.callback(drop)
        url = self.database.url.set(username=name)
        engine = create_engine(url, poolclass=NullPool)
        for kind in kinds:
            self.grant(name, kind, **bounds)
        return Actor(name, url, engine)

    def grant(self, role: str, kind: str, **bounds: Collection[str] | None) -> None:
        """Grant as a migration does, within these queues and channels."""
        self._operate(lambda op: op.grant_fairqueue(role, kind, schema=SCHEMA, **bounds))

    def revoke(self, role: str, kind: str | None = None) -> None:
        """Revoke as a migration does."""
        self._operate(lambda op: op.revoke_fairqueue(role, kind, schema=SCHEMA))

    def _operate(self, work: Callable[[Any], None]) -> None:
        with self.owner.begin() as connection:
            work(Operations(MigrationContext.configure(connection)))


@pytest.fixture
def jobs(make_database: MakeDatabase) -> Iterator[Installation]:
    """An installation in a schema of its own, to which nobody has any right yet."""
    database = make_database(schema=SCHEMA)
    owner = create_engine(database.url, pool_size=5)
    with contextlib.ExitStack() as stack:
        stack.callback(owner.dispose)
        yield Installation(database, owner, stack)
