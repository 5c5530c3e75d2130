"""A database for one run: made, migrated, and dropped at the end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from sqlalchemy_fairqueue.embedded import scratch_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL, Connection, Engine


@contextlib.contextmanager
def migrated_database(server: URL) -> Iterator[Engine]:
    """Yield an engine on a new database of *server* that has every migration of the app."""
    with scratch_database(server) as url:
        engine = create_engine(url)
        try:
            with engine.begin() as connection:
                upgrade(connection)
            yield engine
        finally:
            engine.dispose()


def upgrade(connection: Connection) -> None:
    """Bring the database of *connection* to the newest revision, in its transaction."""
    config = Config()
    config.set_main_option("script_location", "sqlalchemy_fairqueue.demo:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
