"""Migrations and installations on each driver."""

from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection

import alembic_ext  # noqa: F401 - registers op.create_fairqueue
from sqlalchemy_fairqueue import Queue, SchemaMismatch, install_fairqueue
from sqlalchemy_fairqueue.errors import AutocommitError
from sqlalchemy_fairqueue.sql.catalog import expected_catalog, read_catalog
from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION
from tests.drivers.conftest import MakeFace
from tests.fixtures.database import Database


def _upgrade(connection: Connection) -> None:
    _operations(connection).create_fairqueue(version=NEEDED_VERSION)


def _operations(connection: Connection) -> Any:
    return Operations(MigrationContext.configure(connection))


def test_a_migration(make_face: MakeFace, empty_database: Database, queue: Queue) -> None:
    """A migration installs what every other driver installs, all or nothing, and takes it away again."""
    face = make_face(empty_database.url)
    with pytest.raises(AutocommitError):
        face.on_connection(_upgrade, isolation_level="AUTOCOMMIT")
    face.on_connection(_upgrade)
    found = face.on_connection(lambda connection: read_catalog(connection, "public"))
    assert found == expected_catalog(NEEDED_VERSION)
    assert face.call(queue, "enqueue", channel="a", payload=1).message_id > 0
    face.on_connection(lambda connection: _operations(connection).drop_fairqueue(version=NEEDED_VERSION))
    with pytest.raises(SchemaMismatch, match="not installed"):
        make_face(empty_database.url).call(queue, "stats")


def test_what_is_there_already(make_face: MakeFace, empty_database: Database) -> None:
    """A second installation changes nothing; a migration over it is refused in the server's words."""
    face = make_face(empty_database.url)
    assert face.on_connection(install_fairqueue) is True
    assert face.on_connection(install_fairqueue) is False
    with pytest.raises(SchemaMismatch, match=r"op.create_fairqueue\(\): .*already"):
        face.on_connection(_upgrade)
