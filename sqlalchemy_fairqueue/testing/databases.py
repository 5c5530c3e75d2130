"""Creates databases for tests: a template that is migrated once, and clones of the template."""

from __future__ import annotations

import os
import secrets
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import NullPool, inspect

from sqlalchemy_fairqueue.embedded import any_server
from sqlalchemy_fairqueue.embedded.environment import for_driver
from sqlalchemy_fairqueue.embedded.programs import TEST_SERVER_URL_VARIABLE
from sqlalchemy_fairqueue.embedded.server import disposed_engine, temporary_database
from sqlalchemy_fairqueue.errors import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import URL, Engine

# By default, PostgreSQL 15 and newer writes each page of the copy to its log. Copying the files takes a sixth of that
# time.
_CLONE = 'template "{source}" strategy file_copy'
_MEMORY = "/dev/shm"  # noqa: S108 - the server makes a folder that nobody can guess
_SETTINGS = {"max_connections": "200", "autovacuum": "off"}


def server_for_tests() -> AbstractContextManager[URL]:
    return any_server(TEST_SERVER_URL_VARIABLE, durable=False, settings=_SETTINGS, parent=_MEMORY)


@dataclass(frozen=True, slots=True)
class TemplateDatabase:
    """A database that others are cloned from. Nobody may be connected to it while it is cloned."""

    url: URL
    _server: Engine = field(repr=False)

    @contextmanager
    def clone(self, driver: str = "psycopg") -> Iterator[URL]:
        """Yield the URL of a copy. The end of the ``with`` block drops the copy, even if connections to it are open."""
        name = f"{self.url.database}_{secrets.token_hex(4)}"
        with temporary_database(self._server, name, _CLONE.format(source=self.url.database)) as url:
            yield for_driver(url, driver)


@contextmanager
def template_database(server: URL, migrate: Callable[[Engine], Any]) -> Iterator[TemplateDatabase]:
    """Create a database, call *migrate* with an engine of it, and drop the database at the end of the ``with`` block.

    *migrate* may commit. If *migrate* makes further engines for this database, it must close their connections. If
    *migrate* does not install fairqueue in this database, SchemaMismatch is raised.
    """
    name, options = f"fairqueue_test_{os.getpid()}_{secrets.token_hex(4)}", {"pool_size": 1, "pool_pre_ping": True}
    with (
        disposed_engine(server, isolation_level="AUTOCOMMIT", **options) as engine,
        temporary_database(engine, name) as url,
    ):
        with disposed_engine(url, poolclass=NullPool) as migrating:
            migrate(migrating)
            _check_migrated(migrating)
        yield TemplateDatabase(url, engine)


def _check_migrated(engine: Engine) -> None:
    found = inspect(engine)
    if not any(found.has_table("fq_message", schema) for schema in found.get_schema_names()):
        raise SchemaMismatch(
            f"the database {engine.url.database!r} for tests has no fairqueue after fairqueue_migrate, which may have "
            "changed another database; let migrations/env.py take the engine that fairqueue_migrate gets, as the page "
            "on testing of the documentation shows"
        )
